/* The library against another project's cases: `mha conformance` over the folder that the variable MHA_VECTORS
 * names, once for every instruction set that this machine has. */
#include "command.h"

#include <mha.h>

/* The end of the output, where the count stands alone on its line. */
static const char *last_line(const char *text)
{
    size_t n = strlen(text);
    while (n && text[n - 1] == '\n') n--;
    while (n && text[n - 1] != '\n') n--;
    return text + n;
}

TEST(vectors)
{
    const char *folder = getenv("MHA_VECTORS");
    if (!folder || !*folder) {
        not_given("MHA_VECTORS names no folder of cases");
        return;
    }
    for (int i = 0; i < mha_isa_count(); i++) {
        char settings[100];
        int passed = 0, failed = -1;
        if (!mha_isa_get(i).available) continue;
        snprintf(settings, sizeof settings, "MHA_ISA=%s", mha_isa_get(i).name);
        const said *it = command(settings, "conformance \"$MHA_VECTORS\"");
        sscanf(last_line(it->out), "%d passed, %d failed", &passed, &failed); // NOLINT(cert-err34-c)
        if (!expect(it->status == 0 && passed > 0 && failed == 0, "%s: exit %d, %s%s", mha_isa_get(i).name, it->status,
                    it->err, last_line(it->out)))
            for (const char *line = it->out; (line = strstr(line, "FAILED")); line++) printf("    %.200s\n", line);
    }
}
