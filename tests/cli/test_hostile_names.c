/* Names that try to command a terminal, in every place that a command reads a name from: arguments, the environment,
 * files, folders, tensors, metadata, tokens. Whatever a command prints, nothing in it may be obeyed instead of shown. */
#include "cli/small_vit.h"

#include <sys/stat.h>

/* ESC and CSI three ways, a bell, DEL, a newline, an override of the direction; and one letter that is to stay. */
#define HOSTILE    \
    "\x1b[31m\x9b" \
    "2J\xc2\x9b"   \
    "2J\a\x7f\n\r\t\xe2\x80\xae\xc3\xa9"
#define IN_JSON "\\u001b[31m\\u009b2J\\u0007\\u007f\\n\\r\\t\\u202e\\u00e9"

/* The number of the character at *text, which moves on; 0xfffd of what is no UTF-8. */
static unsigned next_character(const unsigned char **text)
{
    const unsigned char *p = *text;
    int more = p[0] < 0x80 ? 0 : p[0] < 0xc0 ? -1 : p[0] < 0xe0 ? 1 : p[0] < 0xf0 ? 2 : 3;
    unsigned number = more <= 0 ? p[0] : p[0] & (0x3fu >> more);
    *text += 1;
    for (int i = 0; i < more; i++, *text += 1) {
        if ((**text & 0xc0) != 0x80) return 0xfffd;
        number = number << 6 | (**text & 0x3fu);
    }
    return more < 0 ? 0xfffd : number;
}

static bool is_safe(const char *text)
{
    for (const unsigned char *at = (const unsigned char *)text; *at;) {
        unsigned c = next_character(&at);
        bool control = (c < 0x20 && c != '\n') || (c >= 0x7f && c < 0xa0) || c == 0xfffd;
        bool direction =
            c == 0x61c || c == 0x200e || c == 0x200f || (c >= 0x2028 && c <= 0x202e) || (c >= 0x2066 && c <= 0x2069);
        if (control || direction) return false;
    }
    return true;
}

/* Runs it; "$H" in the arguments is the name. The name must be shown, or the case looks at nothing. */
static void show_at(int line, int status, const char *program, const char *settings, const char *args)
{
    said *it = (said *)(uintptr_t)run_program(program, settings, args);
    bool shown = strstr(it->out, "\\x1b[31m") || strstr(it->err, "\\x1b[31m") || strstr(it->out, "\\u001b[31m") ||
                 strstr(it->err, "\\u001b[31m");
    expect(it->status == status, "line %d: %s: exit %d, %s", line, args, it->status, it->err);
    expect(is_safe(it->out), "line %d: %s: standard output commands the terminal", line, args);
    expect(is_safe(it->err), "line %d: %s: standard error commands the terminal", line, args);
    expect(shown, "line %d: %s: the name is not there: %.300s%.300s", line, args, it->out, it->err);
}
#define SHOW(status, args) show_at(__LINE__, status, COMMAND, "", args)

/* A file of tensors by hand: the header as it stands, and zeros behind it. */
static void put_tensors(const char *path, const char *header, size_t zeros)
{
    FILE *file = fopen(path, "wb");
    uint64_t size = strlen(header);
    if (!expect(file, "cannot write %s", path)) return;
    for (int i = 0; i < 64; i += 8) fputc((int)(size >> i & 255), file);
    fputs(header, file);
    for (size_t i = 0; i < zeros; i++) fputc(0, file);
    fclose(file);
}

static bool prepare(void)
{
    static bool tried, done;
    small_vit v;
    nn_description config = small_config();
    char path[200], error[300] = "";
    if (tried) return expect(done, "not prepared");
    tried = true;
    if (!expect(setenv("H", HOSTILE, 1) == 0 && is_safe("\u00e9\n") && !is_safe("\x9b") && !is_safe("\xc2\x9b"), "H"))
        return false;
    nn_mnist *set = small_folder("d" HOSTILE);
    done = set && small_make(&v, &config, "m" HOSTILE);
    if (done) small_free(&v);
    snprintf(path, sizeof path, "i%s.pgm", HOSTILE);
    FILE *file = fopen(path, "wb");
    done = done && expect(file, "%s", error);
    if (file) {
        fputs("P5\n28 28\n255\n", file);
        fwrite(set->test.images, 1, 28 * 28, file);
        fclose(file);
    }
    nn_mnist_free(set);
    return done;
}

TEST(arguments)
{
    if (!prepare()) return;
    static const char *const refused[] = {
        "\"$H\"",
        "\"--$H\"",
        "info \"--$H\"",
        "info \"$H\"",
        "eval \"$H\"",
        "eval \"--$H\"",
        "eval m --part \"$H\"",
        "eval m --threads \"$H\"",
        "classify \"$H\" 1",
        "classify \"m$H\" \"$H\"",
        "classify m 1 --block \"$H\"",
        "heads \"$H\"",
        "heads m --sort \"$H\"",
        "heads m --format \"$H\"",
        "prune \"$H\" --heads 1 -o x",
        "prune m --heads \"$H\" -o x",
        "prune m --max-drop \"$H\" -o x",
        "view \"$H\" -o x",
        "view \"m$H\" \"$H\" -o x",
        "view --attention \"$H\" -o x",
        "layer \"$H\" y -o z",
        "layer x y -o z \"$H\"",
        "layer x y -o z --heads \"$H\"",
        "layer x y -o z --weights \"$H\"",
        "train \"$H\"",
        "train vit --out x --preset \"$H\"",
        "train vit --out x --config \"$H\"",
        "train vit --out x --config \"width=$H\"",
        "train vit --out x --data \"$H\"",
        "train vit --out x --sweep \"$H\"",
        "train vit --out x --sweep \"heads=$H\"",
        "train vit --out \"no/$H\" --data synthetic:60 --config batch=8 --sweep heads=1",
        "train vit --out \"no/$H\"",
        "demo --data \"$H\"",
        "demo -o \"no/such/$H\"",
        "explain --word \"$H\"",
        "explain --head \"$H\"",
        "explain --text \"$H\"",
        "explain --cross \"$H\"",
        "explain --diagram -o \"$H\"",
        "inspect \"$H\"",
        "inspect m --model-heads \"$H\"",
        "bench --shape \"$H\"",
        "bench --dtype \"$H\"",
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) SHOW(2, refused[i]);
    show_at(__LINE__, 2, COMMAND, "MHA_ISA=\"$H\"", "info");
}

TEST(files_that_are_good)
{
    if (!prepare()) return;
    SHOW(0, "eval \"m$H\" --data \"d$H\"");
    SHOW(0, "eval \"m$H\" --data \"d$H\" --json");
    SHOW(0, "classify \"m$H\" \"i$H.pgm\" --heads");
    SHOW(0, "classify \"m$H\" 3 --data \"d$H\" --sheet \"s$H.html\"");
    SHOW(0, "classify \"m$H\" 3 --data \"d$H\" --format svg --out \"s$H.svg\"");
    SHOW(0, "classify \"m$H\" \"i$H.pgm\" --heads --json");
    SHOW(0, "heads \"m$H\" --data \"d$H\"");
    SHOW(0, "heads \"m$H\" --data \"d$H\" --json");
    SHOW(0, "heads \"m$H\" --data \"d$H\" --format svg --out \"s$H.svg\"");
    SHOW(0, "inspect \"m$H\"");
    SHOW(0, "inspect \"m$H\" --json");
    SHOW(0, "inspect \"m$H\" --diagram");
    SHOW(0, "prune \"m$H\" --data \"d$H\" --heads 3 --tune 0 --epochs 0 -o \"p$H\"");
    SHOW(0, "prune \"m$H\" --data \"d$H\" --heads 3 --tune 0 --epochs 0 -o \"p$H\" --json");
    SHOW(0, "view \"m$H\" --data \"d$H\" -o \"v$H.html\"");
    SHOW(0, "train vit --out \"t$H\" --data \"d$H\" --log \"l$H\" --force "
            "--config patch=14,width=8,depth=1,heads=2,mlp=8,batch=10,held_out=10,epochs=1");
}

TEST(tensors_and_metadata)
{
    if (!prepare()) return;
    /* Llama's names, and one more; the same under a prefix; the same with a type that will not do. */
    put_tensors("stranger",
                "{\"q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]},\"" IN_JSON
                "\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[16,20]}}",
                20);
    SHOW(2, "layer stranger y -o z");
    put_tensors("inner", "{\"" IN_JSON "q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
                16);
    SHOW(2, "layer inner y -o z");
    SHOW(2, "layer inner y -o z --prefix \"$H\"");
    put_tensors("typed",
                "{\"a\\u001b[31m\\u009b.q_proj.weight\":{\"dtype\":\"I64\",\"shape\":[1,2],\"data_offsets\":[0,16]}}",
                16);
    SHOW(2, "layer typed y -o z --prefix \"$(printf 'a\\033[31m\\302\\233.')\"");
    put_tensors("noted",
                "{\"__metadata__\":{\"heads\":\"" IN_JSON
                "\"},\"q_proj.weight\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[0,16]}}",
                16);
    SHOW(2, "layer noted y -o z");
    FILE *file = fopen("config.json", "wb");
    if (!expect(file, "cannot write")) return;
    fputs("{\"model_type\": \"\\u001b[31m\\u009b\"}", file);
    fclose(file);
    SHOW(2, "layer inner y -o z --prefix b");
    unlink("config.json");
    SHOW(2, "layer inner y -o z --config \"$H\"");
    put_tensors("noted_vit", "{\"__metadata__\":{\"heads\":\"" IN_JSON "\"}}", 0);
    SHOW(2, "eval noted_vit");
    put_tensors("weights", "{\"" IN_JSON "\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[0,16]}}", 16);
    SHOW(2, "view --attention weights -o x --tensor a");
    SHOW(2, "view --attention weights -o x --tensor \"$H\"");
    SHOW(2, "view weights -o \"x$H\"/y");
    put_tensors("broken", "{\"" IN_JSON "\":{\"dtype\":\"F32\",\"shape\":[1,2,2],\"data_offsets\":[0,12]}}", 12);
    SHOW(2, "view --attention broken -o x");
    SHOW(2, "eval broken");
}

/* One head that looks at nothing but itself, and the hostile name as the tokens and the name of the tensor. */
TEST(tokens)
{
    static const float one = 1;
    if (!prepare()) return;
    FILE *file = fopen("t" HOSTILE, "wb");
    put_tensors("w", "{\"" IN_JSON "\":{\"dtype\":\"F32\",\"shape\":[1,1,1],\"data_offsets\":[0,4]}}", 4);
    FILE *weights = fopen("w", "rb+");
    if (!expect(file && weights, "cannot write")) return;
    fseek(weights, -4, SEEK_END);
    fwrite(&one, sizeof one, 1, weights);
    fclose(weights);
    fputs("a\x1b[31m\n" HOSTILE "\nc\n", file);
    fclose(file);
    SHOW(2, "view --attention w -o x --tokens \"t$H\"");
    SHOW(2, "view --attention w -o x --tokens \"$H\"");
    SHOW(0, "view --attention w -o \"x$H\"");
}

TEST(cases)
{
    if (!prepare() || !expect(mkdir("c" HOSTILE, 0700) == 0, "no folder")) return;
    put_tensors("c" HOSTILE "/a" HOSTILE ".safetensors", "{\"__metadata__\":{\"op\":\"" IN_JSON "\",\"opset\":\"23\"}}",
                0);
    put_tensors("c" HOSTILE "/b.safetensors", "{\"__metadata__\":{\"op\":\"Attention\",\"opset\":\"" IN_JSON "\"}}", 0);
    put_tensors(
        "c" HOSTILE "/c.safetensors",
        "{\"__metadata__\":{\"op\":\"Attention\",\"opset\":\"23\",\"inputs\":\"" IN_JSON "\",\"outputs\":\"Y\"}}", 0);
    put_tensors("c" HOSTILE "/d" HOSTILE ".safetensors", "{", 0);
    show_at(__LINE__, 1, CONFORMANCE, "", "\"c$H\"");
    show_at(__LINE__, 2, CONFORMANCE, "", "\"$H\"");
    show_at(__LINE__, 2, CONFORMANCE, "", "\"--$H\"");
}
