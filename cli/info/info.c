/* mha info: the build, the machine, its GPUs, the instruction set in use and why. */
#include "cli/common/options.h"
#include "io/json.h"

#include <mha.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct machine {
    const char *architecture;
    char processor[96];
    long cores;         /* online */
    int threads;        /* used by a context */
    const char *isa;    /* used by a context */
    const char *forced; /* value of MHA_ISA, or NULL */
} machine;

/* ---- The processor's name --------------------------------------------------------------------------------------- */

#if defined(__x86_64__) || defined(__i386__)

#include <cpuid.h>

#ifdef __x86_64__
static const char architecture[] = "x86_64";
#else
static const char architecture[] = "x86";
#endif

/* The brand string: three leaves of sixteen characters each, with redundant blanks. */
static void name_processor(char *out, size_t room)
{
    unsigned words[12] = {0};
    char brand[sizeof words + 1] = "";
    if ((unsigned)__get_cpuid_max(0x80000000u, NULL) >= 0x80000004u)
        for (unsigned i = 0; i < 3; i++)
            __get_cpuid(0x80000002u + i, &words[4 * i], &words[4 * i + 1], &words[4 * i + 2], &words[4 * i + 3]);
    memcpy(brand, words, sizeof words);
    size_t n = 0;
    for (const char *p = brand; *p && n + 1 < room; p++)
        if (*p != ' ' || (n && p[1] && p[1] != ' ')) out[n++] = *p;
    out[n] = 0;
    if (!n) snprintf(out, room, "unknown");
}

#else

#include <fcntl.h>

#if defined(__aarch64__)
static const char architecture[] = "aarch64";
#elif defined(__arm__)
static const char architecture[] = "arm";
#else
static const char architecture[] = "unknown";
#endif

static const struct {
    unsigned implementer, part;
    const char *name;
} cores[] = {
    {0x41, 0xd03, "Arm Cortex-A53"},    {0x41, 0xd04, "Arm Cortex-A35"},   {0x41, 0xd05, "Arm Cortex-A55"},
    {0x41, 0xd07, "Arm Cortex-A57"},    {0x41, 0xd08, "Arm Cortex-A72"},   {0x41, 0xd09, "Arm Cortex-A73"},
    {0x41, 0xd0a, "Arm Cortex-A75"},    {0x41, 0xd0b, "Arm Cortex-A76"},   {0x41, 0xd0c, "Arm Neoverse-N1"},
    {0x41, 0xd0d, "Arm Cortex-A77"},    {0x41, 0xd0e, "Arm Cortex-A76AE"}, {0x41, 0xd40, "Arm Neoverse-V1"},
    {0x41, 0xd41, "Arm Cortex-A78"},    {0x41, 0xd42, "Arm Cortex-A78AE"}, {0x41, 0xd44, "Arm Cortex-X1"},
    {0x41, 0xd46, "Arm Cortex-A510"},   {0x41, 0xd47, "Arm Cortex-A710"},  {0x41, 0xd48, "Arm Cortex-X2"},
    {0x41, 0xd49, "Arm Neoverse-N2"},   {0x41, 0xd4a, "Arm Neoverse-E1"},  {0x41, 0xd4d, "Arm Cortex-A715"},
    {0x41, 0xd4e, "Arm Cortex-X3"},     {0x41, 0xd4f, "Arm Neoverse-V2"},  {0x41, 0xd80, "Arm Cortex-A520"},
    {0x41, 0xd81, "Arm Cortex-A720"},   {0x41, 0xd82, "Arm Cortex-X4"},    {0x41, 0xd84, "Arm Neoverse-V3"},
    {0x41, 0xd85, "Arm Cortex-X925"},   {0x41, 0xd87, "Arm Cortex-A725"},  {0x41, 0xd8e, "Arm Neoverse-N3"},
    {0x43, 0x0af, "Marvell ThunderX2"}, {0x46, 0x001, "Fujitsu A64FX"},    {0x48, 0xd01, "HiSilicon TaiShan v110"},
    {0x4e, 0x004, "NVIDIA Carmel"},     {0x51, 0x001, "Qualcomm Oryon"},   {0x61, 0x022, "Apple M1"},
    {0x61, 0x023, "Apple M1"},          {0x61, 0x024, "Apple M1 Pro"},     {0x61, 0x025, "Apple M1 Pro"},
    {0x61, 0x028, "Apple M1 Max"},      {0x61, 0x029, "Apple M1 Max"},     {0x61, 0x032, "Apple M2"},
    {0x61, 0x033, "Apple M2"},          {0x6d, 0xd49, "Azure Cobalt 100"}, {0xc0, 0xac3, "Ampere-1"},
    {0xc0, 0xac4, "Ampere-1a"},
};

/* The number behind the colon of the line that begins with `name`; or 0. */
static unsigned field(const char *text, const char *name)
{
    const char *line = strstr(text, name), *colon = line ? strchr(line, ':') : NULL;
    return colon ? (unsigned)strtoul(colon + 1, NULL, 0) : 0;
}

/* Linux lists the first core first, which is a small one if cores differ. On other systems the name is unknown. Read without
 * a FILE, which takes memory: the name does not depend on how much there is. */
static void name_processor(char *out, size_t room)
{
    char text[4096];
    int file = open("/proc/cpuinfo", O_RDONLY | O_CLOEXEC);
    ssize_t size = file >= 0 ? read(file, text, sizeof text - 1) : 0;
    if (file >= 0) close(file);
    text[size > 0 ? size : 0] = 0;
    unsigned implementer = field(text, "CPU implementer"), part = field(text, "CPU part");
    snprintf(out, room, "unknown");
    if (!implementer) return;
    snprintf(out, room, "implementer 0x%02x, part 0x%03x", implementer, part);
    for (size_t i = 0; i < sizeof cores / sizeof *cores; i++)
        if (cores[i].implementer == implementer && cores[i].part == part) snprintf(out, room, "%s", cores[i].name);
}

#endif

/* ---- Output ----------------------------------------------------------------------------------------------------- */

static void put_row(const term *t, const char *what, const char *value)
{
    fputs("  ", stdout);
    term_left(t, 18, TERM_FAINT, what);
    cli_print(stdout, "%s\n", value);
}

/* The same for a text of several words, on as many lines of 80 columns as it takes. */
static void put_wrapped(const term *t, const char *what, const char *text)
{
    enum { INDENT = 20, COLUMNS = 79 };
    char line[COLUMNS - INDENT + 1];
    while (*text) {
        size_t length = strlen(text), n = length;
        if (length > COLUMNS - INDENT)
            for (n = COLUMNS - INDENT; n > 1 && text[n] != ' ';) n--;
        if (n == 1) n = COLUMNS - INDENT; /* a word without end */
        snprintf(line, sizeof line, "%.*s", (int)n, text);
        put_row(t, what, line);
        what = "";
        text += n;
        while (*text == ' ') text++;
    }
}

typedef struct gpu {
    char name[32], line[400]; /* the line says what it is, or why it cannot be used or is not there */
    bool there, usable;
} gpu;

static gpu find_gpu(int n)
{
    gpu g;
    snprintf(g.name, sizeof g.name, "cuda:%d", n);
    mha_status status = mha_device_describe(g.name, g.line, sizeof g.line);
    g.usable = status == MHA_OK, g.there = g.usable || status == MHA_UNSUPPORTED;
    return g;
}

/* All GPUs, or why there is none. */
static void put_gpus(const term *t)
{
    gpu g = find_gpu(0);
    int n = 0;
    if (!g.there) snprintf(g.name, sizeof g.name, "gpu");
    do put_wrapped(t, g.name, strncmp(g.line, "device: ", 8) == 0 ? g.line + 8 : g.line);
    while (g.there && (g = find_gpu(++n)).there);
}

static void put_isa(const term *t, const machine *m, mha_isa isa)
{
    bool used = strcmp(isa.name, m->isa) == 0;
    const char *state = used            ? "used"
                        : isa.available ? "available"
                        : isa.built     ? "not on this machine"
                                        : "not in this build";
    fputs("  ", stdout);
    term_left(t, 18, used ? TERM_BOLD : isa.available ? TERM_PLAIN : TERM_FAINT, isa.name);
    term_left(t, 21, used ? TERM_BOLD : isa.available ? TERM_PLAIN : TERM_FAINT, state);
    printf("%s\n", isa.needs);
}

static void put_text(const machine *m)
{
    term t = term_detect(TERM_AUTO);
    char counts[80];
    printf("%smha %s%s  multi-head attention for C\n\n", term_style_on(&t, TERM_BOLD), mha_version(),
           term_style_on(&t, TERM_PLAIN));
    put_row(&t, "architecture", m->architecture);
    put_row(&t, "processor", m->processor);
    snprintf(counts, sizeof counts, "%d, on %ld online core%s", m->threads, m->cores, m->cores == 1 ? "" : "s");
    put_row(&t, "threads", counts);
    put_gpus(&t);
    fputs("\n  ", stdout);
    term_left(&t, 18, TERM_FAINT, "instruction set");
    term_left(&t, 21, TERM_FAINT, "state");
    term_left(&t, 5, TERM_FAINT, "needs");
    fputs("\n", stdout);
    for (int i = mha_isa_count() - 1; i >= 0; i--) put_isa(&t, m, mha_isa_get(i));
    if (m->forced) printf("\n  %s was selected by MHA_ISA.\n", m->isa);
    else printf("\n  %s is the best available instruction set; MHA_ISA=NAME selects another.\n", m->isa);
}

/* The reason is that of the first GPU, or of there being none; null if one can be used. */
static void put_json_gpus(void)
{
    char quoted[900];
    const gpu first = find_gpu(0);
    gpu g = first;
    bool used = false;
    fputs("  \"gpus\": [", stdout);
    for (int n = 0; g.there; g = find_gpu(++n)) {
        printf("%s\n    {\"device\": %s, ", n ? "," : "", nn_json_quote(quoted, sizeof quoted, g.name));
        printf("\"%s\": %s}", g.usable ? "description" : "reason", nn_json_quote(quoted, sizeof quoted, g.line));
        used = used || g.usable;
    }
    printf("%s],\n  \"gpu_reason\": %s,\n", first.there ? "\n  " : "",
           used ? "null" : nn_json_quote(quoted, sizeof quoted, first.line));
}

static void put_json(const machine *m)
{
    char quoted[200];
    printf("{\n  \"version\": %s,\n", nn_json_quote(quoted, sizeof quoted, mha_version()));
    printf("  \"architecture\": %s,\n", nn_json_quote(quoted, sizeof quoted, m->architecture));
    printf("  \"processor\": %s,\n", nn_json_quote(quoted, sizeof quoted, m->processor));
    printf("  \"cores\": %ld,\n  \"threads\": %d,\n", m->cores, m->threads);
    put_json_gpus();
    printf("  \"isa\": %s,\n", nn_json_quote(quoted, sizeof quoted, m->isa));
    printf("  \"isa_reason\": \"%s\",\n  \"isas\": [\n", m->forced ? "MHA_ISA" : "best");
    for (int i = 0; i < mha_isa_count(); i++) {
        mha_isa isa = mha_isa_get(i);
        printf("    {\"name\": %s, ", nn_json_quote(quoted, sizeof quoted, isa.name));
        printf("\"needs\": %s, ", nn_json_quote(quoted, sizeof quoted, isa.needs));
        printf("\"built\": %s, \"available\": %s, \"used\": %s}%s\n", isa.built ? "true" : "false",
               isa.available ? "true" : "false", strcmp(isa.name, m->isa) == 0 ? "true" : "false",
               i + 1 < mha_isa_count() ? "," : "");
    }
    printf("  ]\n}\n");
}

/* ---- The command ------------------------------------------------------------------------------------------------ */

typedef struct request {
    bool json;
} request;

static const cli_option options[] = {{CLI_JSON(request, json)}, CLI_END};

static int describe_machine(void *asked)
{
    const request *r = asked;
    mha_context *ctx = cli_context();
    if (!ctx) return CLI_USAGE;
    const char *forced = getenv("MHA_ISA");
    machine m = {.architecture = architecture,
                 .cores = sysconf(_SC_NPROCESSORS_ONLN),
                 .threads = mha_context_threads(ctx),
                 .isa = mha_context_isa(ctx),
                 .forced = forced && *forced ? forced : NULL};
    name_processor(m.processor, sizeof m.processor);
    if (r->json) put_json(&m);
    else put_text(&m);
    mha_context_free(ctx);
    return CLI_OK;
}

const cli_command info_command = {
    .name = "info",
    .summary = "show version, processor, GPUs and instruction sets",
    .usage = "[OPTIONS]",
    .examples = "  mha info              describe this machine and what the library uses\n"
                "  mha info --json       the same as one JSON object\n"
                "  MHA_ISA=scalar mha info\n"
                "                        test for an instruction set (exit 2 if unavailable)\n",
    .notes = "Prints the version, the architecture, the processor, the number of threads, the\n"
             "GPUs or why none can be used, the known instruction sets, whether this build and\n"
             "this machine have them, and which one is used.\n"
             "\n"
             "JSON keys: version, architecture, processor, cores, threads,\n"
             "gpus: [{device, description}], gpu_reason (null if there are GPUs), isa,\n"
             "isa_reason (\"best\" or \"MHA_ISA\"), isas: [{name, needs, built, available, used}].\n",
    .options = options,
    .request_size = sizeof(request),
    .run = describe_machine};
