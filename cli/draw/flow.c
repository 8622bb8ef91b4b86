/* Diagrams: their description, and the writer for Mermaid.
 *
 * Mermaid lays out the nodes itself, so rows and columns are not used. Labels are quoted; inside the quotes only a few
 * characters are special, and they are written as Mermaid's numeric entities, such as #34; for a quote. */
#include "cli/draw/flow.h"
#include "io/printable.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

int flow_put(flow *f, flow_node node)
{
    assert(f->node_count < FLOW_NODES && node.parts <= FLOW_PARTS);
    f->nodes[f->node_count] = node;
    return f->node_count++;
}

int flow_frame(flow *f, const char *title)
{
    assert(f->group_count < FLOW_GROUPS);
    snprintf(f->groups[f->group_count], FLOW_TEXT, "%s", title);
    return ++f->group_count;
}

static flow_edge *link_nodes(flow *f, int from, int to)
{
    assert(f->link_count < FLOW_LINKS);
    flow_edge *e = &f->links[f->link_count++];
    *e = (flow_edge){.from = from, .to = to};
    return e;
}

void flow_link(flow *f, int from, int to, const char *label)
{
    snprintf(link_nodes(f, from, to)->label, FLOW_TEXT, "%s", label);
}

void flow_link_around(flow *f, int from, int to) { link_nodes(f, from, to)->around = true; }

/* ---- Mermaid ---------------------------------------------------------------------------------------------------- */

static void put_label(nn_buffer *out, const char *text)
{
    char shown[8 * FLOW_TEXT];
    for (const char *at = nn_printable(shown, sizeof shown, text); *at; at++) {
        if (strchr("\"#<>&;`\\|", *at)) nn_buffer_printf(out, "#%d;", *at);
        else nn_buffer_putc(out, *at);
    }
}

/* One line of a label, after those before it. */
static void put_line(nn_buffer *out, const char *text, bool *first)
{
    if (!*text) return;
    if (!*first) nn_buffer_puts(out, "<br/>");
    put_label(out, text);
    *first = false;
}

/* The title is not part of Mermaid's text but of a header in YAML, where a quote between single quotes is doubled. */
static void put_title(nn_buffer *out, const char *text)
{
    char shown[8 * FLOW_TEXT];
    nn_buffer_puts(out, "---\ntitle: '");
    for (const char *at = nn_printable(shown, sizeof shown, text); *at; at++)
        nn_buffer_puts(out, *at == '\'' ? "''" : (char[]){*at, 0});
    nn_buffer_puts(out, "'\n---\n");
}

static void put_node(nn_buffer *out, const flow *f, int n)
{
    static const struct {
        const char *open, *close, *style;
    } forms[] = {
        [FLOW_DATA] = {"[", "]", "data"},  [FLOW_WEIGHT] = {"[[", "]]", "weight"}, [FLOW_STEP] = {"([", "])", "step"},
        [FLOW_SUM] = {"((", "))", "step"}, [FLOW_MAPS] = {"[", "]", "data"},       [FLOW_JOINED] = {"[", "]", "data"},
    };
    const flow_node *node = &f->nodes[n];
    bool first = true;
    nn_buffer_printf(out, "    n%d%s\"", n, forms[node->kind].open);
    put_line(out, node->title, &first);
    put_line(out, node->shape, &first);
    put_line(out, node->note, &first);
    for (int i = 0; i < node->parts; i++) put_line(out, node->names[i], &first);
    nn_buffer_printf(out, "\"%s:::%s\n", forms[node->kind].close, forms[node->kind].style);
}

static void put_nodes_of(nn_buffer *out, const flow *f, int group)
{
    for (int n = 0; n < f->node_count; n++)
        if (f->nodes[n].group == group) put_node(out, f, n);
}

void flow_put_mermaid(nn_buffer *out, const flow *f)
{
    put_title(out, f->headline);
    nn_buffer_puts(out, "flowchart TD\n");
    put_nodes_of(out, f, 0);
    for (int g = 1; g <= f->group_count; g++) {
        nn_buffer_printf(out, "    subgraph g%d [\"", g);
        put_label(out, f->groups[g - 1]);
        nn_buffer_puts(out, "\"]\n");
        put_nodes_of(out, f, g);
        nn_buffer_puts(out, "    end\n");
    }
    for (int i = 0; i < f->link_count; i++) {
        const flow_edge *e = &f->links[i];
        nn_buffer_printf(out, "    n%d -->", e->from);
        if (*e->label) {
            nn_buffer_puts(out, "|\"");
            put_label(out, e->label);
            nn_buffer_puts(out, "\"|");
        }
        nn_buffer_printf(out, " n%d\n", e->to);
    }
    nn_buffer_puts(out, "    classDef data fill:#e4eff9,stroke:#1f6fb5,color:#1d1d1b\n"
                        "    classDef weight fill:#fceedd,stroke:#c2570c,color:#1d1d1b\n"
                        "    classDef step fill:#f3f2ee,stroke:#8a8983,color:#1d1d1b\n");
}

/* ---- Files ------------------------------------------------------------------------------------------------------ */

static bool ends(const char *path, const char *suffix)
{
    size_t length = strlen(path), more = strlen(suffix);
    return length > more && strcmp(path + length - more, suffix) == 0;
}

bool flow_knows(const char *path) { return ends(path, ".svg") || ends(path, ".mmd"); }

bool flow_save(const flow *f, const char *path, char *error, size_t error_size)
{
    nn_buffer out = {0};
    if (ends(path, ".svg")) flow_put_svg(&out, f);
    else flow_put_mermaid(&out, f);
    bool written = !nn_buffer_save(&out, path, error, error_size);
    nn_buffer_free(&out);
    return written;
}
