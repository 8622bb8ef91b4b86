/* Diagrams for commands. */
#include "cli/common/diagram.h"
#include "cli/common/cli.h"

bool diagram_can_write(const char *path, const char *input)
{
    if (!path) return true;
    if (!flow_knows(path))
        return cli_refuse("%s: a diagram is written as .svg or as .mmd, which is Mermaid text", path);
    if (input && cli_is_output(path, input, "input")) return false;
    return cli_can_write(path);
}

int diagram_write(const flow *f, const char *path)
{
    char error[600];
    if (path) {
        if (flow_save(f, path, error, sizeof error)) return CLI_OK;
        cli_error("%s", error);
        return CLI_USAGE;
    }
    nn_buffer out = {0};
    flow_put_mermaid(&out, f);
    bool whole = !out.failed;
    if (whole) fwrite(out.bytes, 1, out.size, stdout);
    else cli_error("not enough memory for the diagram");
    nn_buffer_free(&out);
    return whole ? CLI_OK : CLI_USAGE;
}
