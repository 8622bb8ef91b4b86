/* The mha command as a person or a script meets it: help, slips, exit codes, one line an error; info. */
#include "cli/command.h"

#include <mha.h>
#include <stdint.h>
#include <sys/stat.h>

/* ---- Help and slips --------------------------------------------------------------------------------------------- */

TEST(help_begins_with_examples)
{
    static const char *const asks[] = {"--help", "-h", "help", "info --json --help"};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const said *it = command("", asks[i]);
        const char *usage = strstr(it->out, "Usage: mha");
        expect(it->status == 0 && !*it->err, "%s: exit %d, %s", asks[i], it->status, it->err);
        expect(strncmp(it->out, "Examples:\n", 10) == 0 && usage, "%s: no examples before the usage", asks[i]);
        expect(widest_line(it->out) <= 80, "%s: a line of %zu columns", asks[i], widest_line(it->out));
    }
}

TEST(no_command_shows_the_help_and_fails)
{
    const said *it = command("", "");
    expect(it->status == 2 && !*it->out && strstr(it->err, "Usage: mha"), "exit %d: %s", it->status, it->err);
}

TEST(version_is_that_of_the_library)
{
    char want[40];
    snprintf(want, sizeof want, "mha %s\n", mha_version());
    const said *it = command("", "--version");
    expect(it->status == 0 && strcmp(it->out, want) == 0 && !*it->err, "exit %d: %s", it->status, it->out);
}

TEST(wrong_use_is_one_line_that_helps)
{
    static const struct {
        const char *args, *says;
    } wrong[] = {
        {"inof", "mha: unknown command 'inof'; did you mean 'info'?\n"},
        {"deom", "mha: unknown command 'deom'; did you mean 'demo'?\n"},
        {"Info", "mha: unknown command 'Info'; did you mean 'info'?\n"},
        {"frobnicate", "mha: unknown command 'frobnicate'; 'mha --help' lists them\n"},
        {"x", "mha: unknown command 'x'; 'mha --help' lists them\n"},
        {"''", "mha: unknown command ''; 'mha --help' lists them\n"},
        {"--verison", "mha: unknown option '--verison'; did you mean '--version'?\n"},
        {"--hepl", "mha: unknown option '--hepl'; 'mha --help' lists them\n"},
        {"help inof", "mha: unknown command 'inof'; did you mean 'info'?\n"},
        {"info --jsno", "mha: info: unknown option '--jsno'; did you mean '--json'?\n"},
        {"info --zzzzzzz", "mha: info: unknown option '--zzzzzzz'; 'mha info --help' lists them\n"},
        {"info --json extra", "mha: info: unexpected argument 'extra'; see 'mha info --help'\n"},
        {"info -- --jsno", "mha: info: unexpected argument '--jsno'; see 'mha info --help'\n"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const said *it = command("", wrong[i].args);
        expect(it->status == 2 && !*it->out && strcmp(it->err, wrong[i].says) == 0, "%s: exit %d, %s", wrong[i].args,
               it->status, it->err);
    }
}

/* ---- Names of options ------------------------------------------------------------------------------------------- */

TEST(options_have_the_names_that_people_know)
{
    static const struct {
        const char *args, *says;
    } tries[] = {
        {"generate m --temp x", "generate: --temp must be a number above 0, not 'x'"},
        {"generate m -n x", "generate: -n must be a number from 1 to"},
        {"generate m --max-tokens x", "generate: --max-tokens must be a number"},
        {"generate m --max-new-tokens=x", "generate: --max-new-tokens must be a number"},
        {"generate m --n-predict x", "generate: --n-predict must be a number"},
        {"generate /no/such/model --prompt x", "/no/such/model: No such file"},
        {"transcribe m -n x", "transcribe: -n must be a number"},
        {"train vit --learning-rate x", "train: --learning-rate must be a number"},
        {"train vit --batch-size x", "train: --batch-size must be a whole number"},
        {"eval m --heads x", "eval: --heads must be a number"},
        {"heads m --out ''", "heads: --out needs a file name"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const said *it = command("", tries[i].args);
        expect(it->status == 2 && one_line(it->err) && strstr(it->err, tries[i].says), "%s: exit %d, %s", tries[i].args,
               it->status, it->err);
    }
}

TEST(help_lists_the_other_names_of_options)
{
    const said *it = command("", "generate --help");
    expect(strstr(it->out, "\nOther names:\n  -p                    --prompt\n"), "%s", it->out);
    expect(strstr(it->out, "\n  --tokens              -n, --max-tokens, --max-new-tokens, --n-predict\n"), "%s",
           it->out);
    it = command("", "info --help");
    expect(!strstr(it->out, "Other names"), "%s", it->out);
}

/* A beginning that several options have is an error that lists them. */
TEST(a_long_option_may_be_shortened)
{
    static const struct {
        const char *args, *says;
    } tries[] = {
        {"generate m --max-n x", "generate: --max-new-tokens must be a number"},
        {"generate m --see=x", "generate: --seed must be a number"},
        {"generate m --to x", "generate: '--to' is ambiguous: --tokenizer, --tokens, --top-k, --top-p\n"},
        {"generate m --prom x", "generate: '--prom' is ambiguous: --prompt, --prompts\n"},
        {"heads m --h", "heads: '--h' is ambiguous: --heads, --help\n"},
        {"info --jsonx", "info: unknown option '--jsonx'; did you mean '--json'?\n"},
        {"info --json=1", "info: --json takes no value\n"},
        {"info -j", "info: unknown option '-j'"},
        {"demo --=x", "demo: unknown option '--'"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const said *it = command("", tries[i].args);
        expect(it->status == 2 && one_line(it->err) && strstr(it->err, tries[i].says), "%s: exit %d, %s", tries[i].args,
               it->status, it->err);
    }
    static const char *const asks[] = {"info --js", "info --he", "--vers", "--h", "help info"};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const said *it = command("", asks[i]);
        expect(it->status == 0 && *it->out && !*it->err, "%s: exit %d, %s", asks[i], it->status, it->err);
    }
}

TEST(a_suggestion_is_never_the_opposite)
{
    static const struct {
        const char *args, *says;
    } tries[] = {
        {"prune m --min-drop 1", "prune: unknown option '--min-drop'; 'mha prune --help' lists them\n"},
        {"generate m --max-toekns 1", "generate: unknown option '--max-toekns'; did you mean '--max-tokens'?\n"},
        {"generate m --min-tokesn 1", "generate: unknown option '--min-tokesn'; did you mean '--min-tokens'?\n"},
        {"generate m --repeat-ngram 2",
         "generate: unknown option '--repeat-ngram'; 'mha generate --help' lists them\n"},
        {"tokenize t --special x", "tokenize: unknown option '--special'; 'mha tokenize --help' lists them\n"},
        {"tokenize t --encode x", "tokenize: unknown option '--encode'; 'mha tokenize --help' lists them\n"},
        {"tokenize t --uncased x", "tokenize: unknown option '--uncased'; 'mha tokenize --help' lists them\n"},
        {"layer --no-casual", "layer: unknown option '--no-casual'; did you mean '--no-causal'?\n"},
        {"info --nojson", "info: unknown option '--nojson'; 'mha info --help' lists them\n"},
    };
    for (size_t i = 0; i < sizeof tries / sizeof *tries; i++) {
        const said *it = command("", tries[i].args);
        expect(it->status == 2 && one_line(it->err) && strstr(it->err, tries[i].says), "%s: exit %d, %s", tries[i].args,
               it->status, it->err);
    }
}

/* What a terminal would obey, in a name that somebody else gave a file. */
TEST(a_strange_name_stays_one_plain_line)
{
    const said *it = command("", "eval \"$(printf 'a\\033[31mb\\nc\\302\\233\\233\\342\\200\\256\\303\\251')\"");
    const char *says = "mha: a\\x1b[31mb\\x0ac\\u009b\\x9b\\u202e\u00e9: No such file or directory\n";
    expect(it->status == 2 && strcmp(it->err, says) == 0, "%s", it->err);
}

/* A pipe that nobody writes to, in the place of every file that a command reads: refused, not waited for. */
TEST(no_command_waits_for_a_pipe)
{
    static const char *const reads[] = {
        "eval P",
        "eval P --data D",
        "classify P 1",
        "heads P",
        "inspect P",
        "prune P --heads 1 -o D/x",
        "view P -o D/x",
        "view --attention P -o D/x",
        "layer P D/x -o D/y",
        "train vit --resume --out P",
        "train vit --data D --out D/x",
        "demo --data D --out D/x",
    };
    if (!expect(mkfifo(in_folder("pipe"), 0600) == 0 && mkdir(in_folder("d"), 0700) == 0 &&
                    mkfifo(in_folder("d/train-images-idx3-ubyte"), 0600) == 0 &&
                    mkfifo(in_folder("d/train-labels-idx1-ubyte"), 0600) == 0,
                "no pipe"))
        return;
    expect(mkfifo(in_folder("d/t10k-images-idx3-ubyte"), 0600) == 0, "no pipe");
    expect(mkfifo(in_folder("d/t10k-labels-idx1-ubyte"), 0600) == 0, "no pipe");
    for (size_t i = 0; i < sizeof reads / sizeof *reads; i++) {
        char args[600];
        size_t n = 0;
        for (const char *c = reads[i]; *c; c++) {
            bool path = (*c == 'P' || *c == 'D') && c[-1] == ' ';
            n += path ? (size_t)snprintf(args + n, sizeof args - n, "%s", in_folder(*c == 'P' ? "pipe" : "d"))
                      : (size_t)snprintf(args + n, sizeof args - n, "%c", *c);
        }
        const said *it = command("timeout 60", args);
        expect(it->status == 2 && one_line(it->err) && strstr(it->err, ": not a regular file"), "%s: exit %d, %s",
               reads[i], it->status, it->err);
    }
}

TEST(a_full_disk_is_an_error)
{
    static const char *const speaks[] = {"--help", "--version", "info", "info --json", "eval --help"};
    struct stat about;
    if (stat("/dev/full", &about)) {
        not_given("this system has no /dev/full");
        return;
    }
    for (size_t i = 0; i < sizeof speaks / sizeof *speaks; i++) {
        char args[100];
        snprintf(args, sizeof args, "%s >/dev/full 2>'%s' #", speaks[i], in_folder("err"));
        const said *it = command("", args);
        expect(it->status == 1 && strstr(it->err, "cannot write to standard output") && one_line(it->err),
               "%s: exit %d, %s", speaks[i], it->status, it->err);
    }
}

/* ---- info ------------------------------------------------------------------------------------------------------- */

TEST(info_fits_the_screen_and_names_the_machine)
{
    const said *it = command("", "info");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    expect(strncmp(it->out, "mha ", 4) == 0 && strstr(it->out, mha_version()), "no version: %.40s", it->out);
    expect(widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
    expect(!strchr(it->out, '\x1b'), "colours although it is no terminal");
    static const char *const words[] = {"architecture", "processor", "threads", "is the best available", "cuda"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect(strstr(it->out, words[i]), "no %s", words[i]);
    for (int i = 0; i < mha_isa_count(); i++)
        expect(strstr(it->out, mha_isa_get(i).name), "%s is missing", mha_isa_get(i).name);
}

TEST(info_json_is_valid_and_true)
{
    const said *it = command("", "info --json");
    expect(it->status == 0 && !*it->err, "exit %d: %s", it->status, it->err);
    static const char *const keys[] = {"version", "architecture", "processor",  "cores", "threads",
                                       "gpus",    "isa",          "isa_reason", "isas"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) expect(*json_field(it->out, keys[i]), "no key %s", keys[i]);
    expect(strcmp(json_field(it->out, "version"), mha_version()) == 0, "version %s", json_field(it->out, "version"));
    expect(strcmp(json_field(it->out, "isa_reason"), "best") == 0, "reason %s", json_field(it->out, "isa_reason"));
    expect(atoi(json_field(it->out, "cores")) > 0, "cores %s", json_field(it->out, "cores")); // NOLINT(cert-err34-c)

    char line[400];
    bool gpu = mha_device_describe("cuda", line, sizeof line) == MHA_OK;
    expect(strstr(it->out, line), "no '%s'", line);
    expect(gpu == (strcmp(json_field(it->out, "gpu_reason"), "null") == 0), "reason %s",
           json_field(it->out, "gpu_reason"));

    mha_context *ctx = NULL;
    if (!expect(mha_context_create(&ctx, NULL) == MHA_OK, "no context")) return;
    expect(strcmp(json_field(it->out, "isa"), mha_context_isa(ctx)) == 0, "isa %s", json_field(it->out, "isa"));
    mha_context_free(ctx);
}

/* Exit 2, nothing on standard output, and one line that contains `says`. */
static void refuses(const char *args, const char *says)
{
    const said *it = command("", args);
    const char *end = strchr(it->err, '\n');
    expect(it->status == 2 && !*it->out && end && !end[1] && strstr(it->err, says), "%s: exit %d: %s", args, it->status,
           it->err);
}

TEST(a_device_is_used_or_refused)
{
    static const char *const others[] = {"demo",  "train",    "eval",       "classify", "heads",
                                         "prune", "view",     "inspect",    "generate", "embed",
                                         "fill",  "tokenize", "transcribe", "explain",  "info"};
    static const char *const users[] = {"bench --shape vit_b16", "layer a b -o c"};
    char args[200], line[400];
    for (size_t n = 0; n < sizeof others / sizeof *others; n++) {
        snprintf(args, sizeof args, n % 2 ? "%s --device cuda" : "%s --device=cuda", others[n]);
        refuses(args, "--device is for bench and layer; whole models run on the CPU");
    }
    bool gpu = mha_device_describe("cuda", line, sizeof line) == MHA_OK;
    for (int n = 0; n < 2; n++) {
        snprintf(args, sizeof args, "%s --device tpu", users[n]);
        refuses(args, "mha: --device tpu: there is none called 'tpu'; there are cpu, cuda and cuda:N");
        snprintf(args, sizeof args, "%s --device cuda", users[n]);
        if (!gpu) refuses(args, strncmp(line, "device: ", 8) == 0 ? line + 8 : line);
        snprintf(args, sizeof args, "%s --device ''", users[n]);
        refuses(args, "--device");
    }
}

/* Runs a line in the test's folder: whether the library that stands for the plug-in was loaded. In the line, $run is the emulator that
 * the command needs, or nothing, and $file the command's file. */
static bool loads_plug_in(const char *commands)
{
    static char words[1 << 14];
    char line[1400];
    const char *file = strchr(COMMAND, '\'');
    snprintf(line, sizeof line, "cd '%s' && { run='%.*s' file=%s; %s; } >out 2>&1", in_folder(""),
             (int)(file - COMMAND), COMMAND, file, commands);
    int status = system(line);
    slurp(in_folder("out"), words, sizeof words);
    expect(status == 0, "%s: %s", commands, words);
    return strstr(words, "the plug-in is loaded") != NULL;
}

/* Beside the file that runs, wherever a link to it lies and whatever it is called. */
TEST(the_plug_in_is_looked_for_beside_the_real_command)
{
    loads_plug_in("mkdir -p called real link && for d in called real link; do cp '" MARKER
                  "' $d/libmha-cuda.so; done && cp $file real/mha && ln -sf ../real/mha link/mha");
    if (*COMMAND == '\'') { /* an emulator gives the program a name of its own */
        expect(!loads_plug_in("bash -c \"exec -a $PWD/called/mha $file info\""), "beside its name");
        expect(loads_plug_in("cd called && PATH=../link:$PATH && mha info"), "not beside the file found by its name");
    }
    expect(loads_plug_in("cd called && $run ../link/mha info"), "not beside the file of a link");
    expect(!loads_plug_in("rm real/libmha-cuda.so && $run link/mha info"), "beside a link");
}

TEST(a_forced_instruction_set_is_used_or_refused)
{
    for (int i = 0; i < mha_isa_count(); i++) {
        mha_isa isa = mha_isa_get(i);
        char settings[64];
        snprintf(settings, sizeof settings, "MHA_ISA=%s", isa.name);
        const said *it = command(settings, "info --json");
        if (!isa.available) {
            expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, isa.name), "%s: exit %d, %s",
                   isa.name, it->status, it->err);
            continue;
        }
        expect(it->status == 0 && strcmp(json_field(it->out, "isa"), isa.name) == 0 &&
                   strcmp(json_field(it->out, "isa_reason"), "MHA_ISA") == 0,
               "%s: exit %d, %s", isa.name, it->status, it->out);
    }
    static const char *const asks[] = {"info", "info --json"};
    for (size_t i = 0; i < sizeof asks / sizeof *asks; i++) {
        const said *it = command("MHA_ISA=abacus", asks[i]);
        expect(it->status == 2 && !*it->out && one_line(it->err) && strstr(it->err, "abacus") &&
                   strstr(it->err, "scalar"),
               "%s: exit %d, %s", asks[i], it->status, it->err);
    }
}
