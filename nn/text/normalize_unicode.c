/* Normalization forms, and SentencePiece's tables.
 *
 * A run is a character and those behind it that may interact with it: marks and trailing Hangul letters. Runs are
 * normalized one by one. */
#include "text/steps.h"
#include "text/vocabulary.h"

#include <string.h>

/* Sorts marks by combining class, keeping the order of equal ones: by counting, so that a long run takes linear time.
 * The arrays have room for a second copy of the run, where the sorted marks are put first. */
static void sort_marks(nn_flow *f, size_t count)
{
    int32_t *codes = f->codes, *sorted = f->codes + count;
    bool *leads = f->leads, *moved = f->leads + count;
    for (size_t i = 0; i < count;) {
        size_t end = i, places[256] = {0}, before = 0;
        while (end < count && nn_combining_class(codes[end])) end++;
        if (end - i < 2) {
            i = end + (end == i);
            continue;
        }
        for (size_t k = i; k < end; k++) places[nn_combining_class(codes[k])]++;
        for (int c = 0; c < 256; c++) {
            size_t n = places[c];
            places[c] = before;
            before += n;
        }
        for (size_t k = i; k < end; k++) {
            size_t to = places[nn_combining_class(codes[k])]++;
            sorted[to] = codes[k];
            moved[to] = leads[k];
        }
        memcpy(codes + i, sorted, (end - i) * sizeof *codes);
        memcpy(leads + i, moved, (end - i) * sizeof *leads);
        i = end;
    }
}

/* Appends the decomposition of a character to the codes. */
static mha_status decompose(const nn_step *s, nn_flow *f, int32_t code, size_t *count)
{
    int32_t parts[NN_DECOMPOSED];
    int n = nn_decompose(code, s->compatible, parts);
    size_t need = 2 * (*count + (size_t)n);
    if (nn_grow(&f->codes, &f->code_room, need, sizeof *f->codes) ||
        nn_grow(&f->leads, &f->lead_room, need, sizeof *f->leads))
        return nn_flow_memory(f);
    for (int i = 0; i < n; i++) {
        f->codes[*count] = parts[i];
        f->leads[(*count)++] = i == 0;
    }
    return MHA_OK;
}

/* Where the run that begins at `start` ends; its decomposition is in the codes. */
static size_t decompose_run(const nn_step *s, nn_flow *f, size_t start, size_t end, size_t *count)
{
    size_t at = start, n;
    *count = 0;
    while (at < end) {
        int32_t code = nn_utf8_get(f->text.bytes + at, &n), parts[NN_DECOMPOSED];
        if (at > start) {
            if (code < 0x300) break;
            nn_decompose(code, s->compatible, parts);
            if (!nn_joins_previous(parts[0])) break;
        }
        if (decompose(s, f, code, count)) return end;
        at += n;
    }
    return at;
}

/* Puts the codes of a run that begins at `start`. The first, second, ... code that leads a decomposition stands for the
 * first, second, ... character; the others stand for what the code before them stands for. */
static void put_run(nn_flow *f, size_t count, size_t start)
{
    size_t next = start, n = 0, at = start;
    for (size_t i = 0; i < count; i++) {
        if (f->leads[i]) {
            at = next;
            nn_utf8_get(f->text.bytes + at, &n);
            next = at + n;
        }
        nn_flow_put_code(f, f->codes[i], at, next - 1);
    }
}

/* Composes the codes and puts them. If some were composed, all stand for the whole run. */
static void put_composed(nn_flow *f, size_t count, size_t start, size_t end)
{
    size_t left = nn_compose(f->codes, count);
    if (left == count) put_run(f, count, start);
    for (size_t i = 0; i < left && left < count; i++) nn_flow_put_code(f, f->codes[i], start, end - 1);
}

void nn_edit_normalize(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    const char *bytes = f->text.bytes;
    for (size_t at = start, next; at < end && !f->failed; at = next) {
        size_t plain = at, count;
        while (plain < end && (unsigned char)bytes[plain] < 0x80) plain++;
        if (plain < end && plain > at) plain--; /* the last one may carry a mark */
        if (plain > at) {
            nn_flow_copy(f, at, plain);
            next = plain;
            continue;
        }
        next = decompose_run(s, f, at, end, &count);
        sort_marks(f, count);
        if (s->compose) put_composed(f, count, at, next);
        else put_run(f, count, at);
    }
}

/* Puts what the table has for the text, or the text. */
static bool put_mapped(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    const char *mapped = nn_precompiled_shortest(s->precompiled, f->text.bytes + start, end - start);
    if (!mapped) return false;
    nn_flow_put(f, mapped, strlen(mapped), start, end - 1);
    return true;
}

void nn_edit_precompiled(const nn_step *s, nn_flow *f, size_t start, size_t end)
{
    enum { LONGEST = 5 }; /* bytes of a cluster that is looked up as a whole */
    const char *bytes = f->text.bytes;
    for (size_t at = start, next; at < end; at = next) {
        size_t n, cluster;
        int32_t code = nn_utf8_get(bytes + at, &n), state = 0;
        for (cluster = at + n; cluster < end; cluster += n) {
            int32_t after = nn_utf8_get(bytes + cluster, &n);
            if (nn_grapheme_break(code, after, &state)) break;
            code = after;
        }
        next = cluster;
        if (cluster - at <= LONGEST && put_mapped(s, f, at, cluster)) continue;
        for (size_t c = at; c < cluster; c += n) {
            nn_utf8_get(bytes + c, &n);
            if (!put_mapped(s, f, c, c + n)) nn_flow_copy(f, c, c + n);
        }
    }
}
