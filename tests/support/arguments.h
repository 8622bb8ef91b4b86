/* Every public call that takes tensors, with all that it can take, in one piece of memory: for tests that go over all
 * arguments of all calls. */
#ifndef ARGUMENTS_H
#define ARGUMENTS_H

#include <mha.h>

enum { SLOT = 4096, SLOTS = 64, MOST_ARGUMENTS = 48 };

typedef enum call_kind {
    CALL_FORWARD,
    CALL_FORWARD_RAGGED,
    CALL_BACKWARD,
    CALL_BACKWARD_RAGGED,
    CALL_STATS,
    CALL_STATS_RAGGED,
    CALL_ROTARY,
    CALL_TABLES,
    CALL_COPY,
    CALL_MATMUL,
    CALL_LAYER,
    CALL_LAYER_RAGGED,
    CALL_LAYER_BACKWARD,
    CALL_LAYER_BACKWARD_RAGGED,
    CALL_LAYER_STATS,
    CALL_LAYER_STATS_RAGGED,
    CALL_ATTEND,
    CALL_STEP,
    CALL_KINDS
} call_kind;

extern const char *const call_names[CALL_KINDS];

/* D is even for rotary embedding, or the layer has none. Everything of a call has at most SLOT / 2 bytes. */
typedef struct call_sizes {
    int64_t B, H, G, Tq, Tk, D, E, M;
} call_sizes;

/* One argument: a tensor, or a block of parameters. */
typedef struct argument {
    const char *name; /* a word of the message about it */
    mha_tensor *tensor;
    float **block;
    int64_t bytes; /* from its first to the end of its last element */
    int width;     /* of an element */
    bool output;
} argument;

typedef struct public_call {
    call_kind kind;
    call_sizes n;
    mha_context *ctx;
    int used; /* slots */
    int count;
    argument all[MOST_ARGUMENTS];

    mha_tensor out, q, k, v, softmax, dout, dlse, a, b, c, cosines, sines, x;
    mha_attention_options options;
    mha_attention_extras extras;
    mha_attention_gradients gradients;
    mha_stats stats;
    mha_stats_options stats_options;
    mha_rotary_options rotary;
    mha_matmul_options matmul;
    mha_layer_inputs inputs;
    mha_layer_gradients layer_gradients;
    mha_layer *layer;
    mha_tape *tape;
    mha_cache *cache;
} public_call;

/* Where all arguments lie: each at the middle of a slot of its own. */
extern unsigned char call_memory[SLOTS * SLOT];

/* A good call with everything that it can be asked for, and the forward call before it where it needs one. Exits with a
 * message if that fails. */
void call_make(public_call *call, call_kind kind, call_sizes sizes);
void call_free(public_call *call);

mha_status call_run(public_call *call);

/* Where an argument lies, and moving it. */
char *argument_at(const argument *it);
void argument_move(const argument *it, char *to);

#endif
