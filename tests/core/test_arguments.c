/* What holds for every tensor and array of every public call: an output shares memory with nothing else, and the stride
 * of an axis of one element has no meaning. */
#include "support/arguments.h"
#include "support/calls.h"

static unsigned char before[sizeof call_memory];

/* ---- Shared memory ---------------------------------------------------------------------------------------------- */

/* The output ends with its last element on the first one of another argument: refused, with both names in the message
 * and nothing written. If it ends right before that element, it is accepted. */
static void expect_apart(public_call *c, const argument *output, const argument *other)
{
    char *home = argument_at(output), *shared = argument_at(other) - (output->bytes - output->width);
    argument_move(output, shared);
    memcpy(before, call_memory, sizeof before);
    mha_status status = call_run(c);
    const char *text = mha_context_error(c->ctx);
    expect(status == MHA_OVERLAP, "%s: %s on %s: %s: %s", call_names[c->kind], output->name, other->name,
           mha_status_name(status), text);
    expect(strstr(text, output->name) && strstr(text, other->name), "%s: '%s' names not %s and %s", call_names[c->kind],
           text, output->name, other->name);
    expect(!memcmp(before, call_memory, sizeof before), "%s: %s on %s: refused, but memory has changed",
           call_names[c->kind], output->name, other->name);
    argument_move(output, shared - output->width);
    memset(argument_at(output), 0, (size_t)output->bytes); /* gradients of a layer are added to what is there */
    status = call_run(c);
    expect(!status, "%s: %s beside %s: %s", call_names[c->kind], output->name, other->name, mha_context_error(c->ctx));
    argument_move(output, home);
}

TEST(outputs_share_memory_with_nothing)
{
    const call_sizes n = {2, 4, 2, 3, 5, 4, 4, 6};
    static public_call c;
    for (int kind = 0; kind < CALL_KINDS; kind++) {
        int outputs = 0;
        call_make(&c, (call_kind)kind, n);
        expect(!call_run(&c), "%s: %s", call_names[kind], mha_context_error(c.ctx));
        for (int a = 0; a < c.count; a++)
            for (int b = 0; c.all[a].output && b < c.count; b++) {
                outputs++;
                if (a != b) expect_apart(&c, &c.all[a], &c.all[b]);
            }
        expect(outputs > 1, "%s: nothing was compared", call_names[kind]);
        call_free(&c);
    }
}

/* ---- Strides ---------------------------------------------------------------------------------------------------- */

static bool is_empty(mha_tensor t)
{
    for (int axis = 0; axis < t.rank; axis++)
        if (!t.size[axis]) return true;
    return false;
}

/* Strides that may be anything, set to `stride`; those of an empty tensor only as large as 63 bits allow. Returns how
 * many there were. */
static int set_strides(mha_tensor *t, int64_t stride)
{
    int changed = 0;
    for (int axis = 0; axis < t->rank; axis++) {
        if (t->size[axis] > 1 && !is_empty(*t)) continue;
        t->stride[axis] = t->size[axis] > 1 ? stride / 32 / (t->size[axis] - 1) : stride;
        changed++;
    }
    return changed;
}

/* The call with such strides in one of its tensors, on fresh memory: the same bits as without. */
static void try_strides(call_kind kind, call_sizes n, int64_t stride)
{
    static public_call c;
    call_make(&c, kind, n);
    expect(!call_run(&c), "%s: %s", call_names[kind], mha_context_error(c.ctx));
    memcpy(before, call_memory, sizeof before);
    int count = c.count;
    call_free(&c);
    for (int i = 0; i < count; i++) {
        call_make(&c, kind, n);
        if (c.all[i].tensor && set_strides(c.all[i].tensor, stride)) {
            mha_status status = call_run(&c);
            expect(!status, "%s: strides of %s: %s", call_names[kind], c.all[i].name, mha_context_error(c.ctx));
            expect(!memcmp(before, call_memory, sizeof before), "%s: strides of %s change the results",
                   call_names[kind], c.all[i].name);
        }
        call_free(&c);
    }
}

static void try_all(const call_sizes *shapes, size_t count)
{
    for (size_t s = 0; s < count; s++)
        for (int kind = 0; kind < CALL_KINDS; kind++) {
            if (!shapes[s].B && (kind == CALL_ATTEND || kind == CALL_STEP)) continue; /* a cache has at least one row */
            try_strides((call_kind)kind, shapes[s], INT64_MAX);
            try_strides((call_kind)kind, shapes[s], INT64_MIN);
        }
}

TEST(strides_of_one_element_mean_nothing)
{
    const call_sizes shapes[] = {
        {1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 1, 1, 5, 4, 4, 6}, {2, 1, 1, 3, 1, 2, 1, 6}, {1, 4, 2, 11, 5, 1, 4, 1}};
    try_all(shapes, sizeof shapes / sizeof *shapes);
}

TEST(strides_of_no_element_mean_nothing)
{
    const call_sizes shapes[] = {{2, 2, 1, 0, 5, 4, 4, 6}, {2, 2, 1, 3, 0, 4, 4, 6}, {0, 2, 1, 3, 5, 4, 4, 6}};
    try_all(shapes, sizeof shapes / sizeof *shapes);
}
