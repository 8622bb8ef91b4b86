/* Diagrams of data flow, as SVG or as Mermaid text, from one description:
 *
 *     flow f = {.headline = "Two steps"};
 *     int x = flow_put(&f, (flow_node){.kind = FLOW_DATA, .title = "X", .shape = "(8, 64)", .row = 0});
 *     int y = flow_put(&f, (flow_node){.kind = FLOW_STEP, .title = "LayerNorm", .row = 1});
 *     flow_link(&f, x, y, "");
 *     if (!flow_save(&f, "flow.svg", error, sizeof error)) puts(error);
 *
 * Nodes stand on a grid that the caller chooses: rows from 0 downwards, as high as their highest node, and columns of
 * equal width, in which fractions are allowed. An SVG has light and dark colours and follows the reader's system. All
 * text is escaped. */
#ifndef FLOW_H
#define FLOW_H

#include "io/buffer.h"

#include <stdint.h>

enum { FLOW_NODES = 48, FLOW_LINKS = 72, FLOW_GROUPS = 4, FLOW_PARTS = 16, FLOW_TEXT = 96 };

typedef enum flow_kind {
    FLOW_DATA,   /* numbers that flow */
    FLOW_WEIGHT, /* a step with parameters */
    FLOW_STEP,   /* a step without */
    FLOW_SUM,    /* a sum, drawn as a circle */
    FLOW_MAPS,   /* numbers with one heatmap per part */
    FLOW_JOINED  /* numbers made of parts side by side */
} flow_kind;

typedef struct flow_node {
    flow_kind kind;
    double column, row, span;                /* of its centre; width in columns, 0 for 1 */
    char title[FLOW_TEXT], shape[FLOW_TEXT]; /* two lines; either may be "" */
    char note[FLOW_TEXT];                    /* a third, smaller */
    int copies;                              /* drawn as a stack of that many cards, up to 4; 0 for 1 */
    int group;                               /* the number of its group plus 1; 0 for none */

    /* Of FLOW_MAPS and FLOW_JOINED: heads. */
    int parts;
    const char *names[FLOW_PARTS]; /* for people */
    const float *maps;             /* (parts,rows,columns), from 0 to 1; valid until the diagram is written */
    int64_t map_rows, map_columns;
} flow_node;

typedef struct flow_edge {
    int from, to;
    bool around; /* drawn to the right of what lies between: a residual connection */
    char label[FLOW_TEXT];
} flow_edge;

typedef struct flow {
    char headline[2 * FLOW_TEXT], about[2 * FLOW_TEXT]; /* above; about may be "" */
    flow_node nodes[FLOW_NODES];
    flow_edge links[FLOW_LINKS];
    char groups[FLOW_GROUPS][FLOW_TEXT]; /* titles of frames around nodes */
    int node_count, link_count, group_count;
} flow;

/* Adds a node, and returns its number; a group of nodes, and returns what goes into `group`. */
int flow_put(flow *f, flow_node node);
int flow_frame(flow *f, const char *title);

/* Adds an arrow, and one around what lies between. */
void flow_link(flow *f, int from, int to, const char *label);
void flow_link_around(flow *f, int from, int to);

/* Appends the diagram. */
void flow_put_svg(nn_buffer *out, const flow *f);
void flow_put_mermaid(nn_buffer *out, const flow *f);

/* Whether the file name ends in .svg or .mmd, which decides the format. */
bool flow_knows(const char *path);

/* Replaces the file atomically. Returns false on error, with one line in `error`, of `error_size` bytes. */
bool flow_save(const flow *f, const char *path, char *error, size_t error_size);

#endif
