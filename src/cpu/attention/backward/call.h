/* One backward call: what its passes share. */
#ifndef MHA_CPU_BACKWARD_CALL_H
#define MHA_CPU_BACKWARD_CALL_H

#include "attention/gradient.h"
#include "cpu/attention/softmax.h"

enum {
    MHA_PAIR = 2 * MHA_BLOCK, /* query rows that meet a tile of keys together */
    MHA_TILES = 4             /* tiles of keys that are held at once: a span */
};

/* What may be wrong with the gradients of a key/value head, worst last. */
enum {
    MHA_UNSOUND = 1, /* some are not finite */
    MHA_BROKEN = 2   /* a score left float32 on the way: none can be trusted */
};

/* A checked call, and the scratch that its tasks share. */
typedef struct mha_backward {
    mha_problem problem; /* extras.softmax is that of the forward call, if it was given */
    mha_plan plan;       /* of the tiles */
    mha_attention_gradients gradients;
    mha_tensor dout, dlse;
    mha_tensor dbias; /* gradients.bias with four axes, stride 0 where it broadcasts; rank 0 if not wanted */
    int64_t Dm, Dp;   /* D rounded up to 4, to MHA_PAD */
    int64_t longest;  /* rows of a key/value head in the longest sequence */
    int64_t pieces;   /* of the order list; each stands for G pieces of work */
    int64_t partials; /* rows of partial dQ */
    bool others;      /* keys that this call does not know of have a part in `out` and in the softmax */
    bool anew;        /* the softmax of rows must be computed: it was not given, or belongs to other scores */
    int tasks;
    size_t task_bytes, total_bytes;

    mha_piece
        *order;    /* a chunk of keys each; `first` is its number, `partial` the place of its rows, G heads of them */
    float *dq;     /* (partials,Dm), in blocks (Dm,MHA_BLOCK): dQ from one chunk of keys */
    float *slopes; /* (partials) the sum of ds |p - j| over one chunk */
    float *delta;  /* a row: dout . out - dlse, 0 if it sees no key */
    mha_softmax_rows softmax;
    atomic_uchar *doubts; /* (B,G) what is wrong there */
} mha_backward;

/* Chunks of keys: as in the forward pass, they depend on the sequence alone, and dQ is their sum in order. */
mha_chunks mha_backward_chunks(const mha_sequence *sequence);

/* Rows of a key/value head in a sequence, rounded up to whole blocks. */
static inline int64_t mha_backward_padded(const mha_backward *call, const mha_sequence *s)
{
    return (call->problem.share * s->queries + MHA_BLOCK - 1) / MHA_BLOCK * MHA_BLOCK;
}

/* Notes a doubt, unless there is a worse one. */
static inline void mha_backward_doubt(const mha_backward *call, int64_t b, int64_t g, unsigned char doubt)
{
    atomic_fetch_or(&call->doubts[b * call->problem.G + g], doubt);
}

#endif
