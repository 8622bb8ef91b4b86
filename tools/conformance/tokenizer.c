/* Cases of a tokenizer: a folder with its files, and cases.json with what the texts give. */
#include "tools/conformance/conformance.h"
#include "cli/common/cli.h"
#include "io/json.h"
#include "io/source.h"

#include <mha_text.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST = 1 << 28 }; /* bytes of cases.json */

static bool join_path(char *out, size_t room, const char *folder, const char *name, const char *file)
{
    bool inside = strcmp(name, ".") != 0;
    int n = snprintf(out, room, "%s%s%s%s%s", folder, inside ? "/" : "", inside ? name : "", *file ? "/" : "", file);
    return n > 0 && (size_t)n < room;
}

bool conformance_is_tokenizer(const char *folder, const char *name)
{
    char cases[4096];
    return join_path(cases, sizeof cases, folder, name, "cases.json") && access(cases, F_OK) == 0;
}

/* One case: where its values lie in cases.json. */
enum { TEXT, PAIR, IDS, TOKENS, TYPES, OFFSETS, DECODED, SPECIAL, LITERAL, FIELDS };
static const char *const fields[FIELDS] = {"text",    "pair",    "ids",     "tokens", "type_ids",
                                           "offsets", "decoded", "special", "literal"};

typedef struct kase {
    nn_json at[FIELDS];
    bool has[FIELDS];
} kase;

/* Everything that a case needs, and why it failed. */
typedef struct runner {
    mha_context *ctx;
    mha_tokenizer *tokenizer;
    char *scratch, *second, *decoded; /* room for any text of the file */
    char why[400];
} runner;

static bool read_case(nn_json *j, kase *k)
{
    char key[32];
    *k = (kase){0};
    nn_json_enter(j, '{');
    while (nn_json_more(j, '}')) {
        nn_json ahead = *j;
        size_t length = 0;
        if (!nn_json_key(&ahead, NULL, &length) || length >= sizeof key || !nn_json_key(j, key, NULL)) return false;
        for (int i = 0; i < FIELDS; i++) {
            if (strcmp(key, fields[i]) != 0) continue;
            k->at[i] = *j;
            k->has[i] = true;
        }
        nn_json_skip(j);
    }
    return !nn_json_failed(j) && k->has[TEXT] && k->has[IDS];
}

/* Compares a number of token n with the next one of an array. */
static bool same_number(runner *r, nn_json *list, const char *what, int64_t n, int64_t got)
{
    int64_t want = -1;
    if (nn_json_more(list, ']') && nn_json_integer(list, &want) && want == got) return true;
    snprintf(r->why, sizeof r->why, "the %s of token %lld is %lld, expected %lld", what, (long long)n, (long long)got,
             (long long)want);
    return false;
}

static bool same_offsets(runner *r, nn_json *list, int64_t n, const mha_token *got)
{
    if (!nn_json_more(list, ']') || !nn_json_enter(list, '[')) return false;
    return same_number(r, list, "start", n, got->start) && same_number(r, list, "end", n, got->end) &&
           !nn_json_more(list, ']');
}

static bool same_piece(runner *r, nn_json *list, int64_t n, const mha_token *got)
{
    size_t length = 0;
    if (!nn_json_more(list, ']') || !nn_json_string(list, r->scratch, &length)) return false;
    if (length == got->piece_length && memcmp(r->scratch, got->piece, length) == 0) return true;
    snprintf(r->why, sizeof r->why, "token %lld is \"%.100s\", expected \"%.100s\"", (long long)n, got->piece,
             r->scratch);
    return false;
}

static bool compare_tokens(runner *r, kase *k, const mha_encoding *e)
{
    snprintf(r->why, sizeof r->why, "the lists of the case cannot be read");
    for (int i = IDS; i <= OFFSETS; i++)
        if (k->has[i] && !nn_json_enter(&k->at[i], '[')) return false;
    for (int64_t n = 0; n < mha_encoding_count(e); n++) {
        mha_token got = mha_encoding_get(e, n);
        if (!same_number(r, &k->at[IDS], "id", n, got.id)) return false;
        if (k->has[TOKENS] && !same_piece(r, &k->at[TOKENS], n, &got)) return false;
        if (k->has[TYPES] && !same_number(r, &k->at[TYPES], "type", n, got.type)) return false;
        if (k->has[OFFSETS] && !same_offsets(r, &k->at[OFFSETS], n, &got)) return false;
    }
    if (!nn_json_more(&k->at[IDS], ']')) return true;
    snprintf(r->why, sizeof r->why, "only %lld tokens", (long long)mha_encoding_count(e));
    return false;
}

/* The text of the ids. */
static bool decode(runner *r, const mha_encoding *e, size_t *length)
{
    int64_t count = mha_encoding_count(e);
    int32_t *ids = malloc(((size_t)count + 1) * sizeof *ids);
    if (!ids) {
        snprintf(r->why, sizeof r->why, "not enough memory");
        return false;
    }
    for (int64_t i = 0; i < count; i++) ids[i] = mha_encoding_get(e, i).id;
    mha_status status = mha_tokenizer_decode(r->ctx, r->tokenizer, r->decoded, MOST, length, ids, count, false);
    free(ids);
    if (status) snprintf(r->why, sizeof r->why, "%s", mha_context_error(r->ctx));
    return !status;
}

static bool compare_decoded(runner *r, kase *k, const mha_encoding *e)
{
    size_t want = 0, got = 0;
    if (!k->has[DECODED]) return true;
    if (!decode(r, e, &got)) return false;
    if (!nn_json_string(&k->at[DECODED], r->scratch, &want)) snprintf(r->why, sizeof r->why, "'decoded' is no text");
    else if (got != want || memcmp(r->decoded, r->scratch, got) != 0)
        snprintf(r->why, sizeof r->why, "decoded to \"%.150s\", expected \"%.150s\"", r->decoded, r->scratch);
    else return true;
    return false;
}

static bool run_case(runner *r, kase *k)
{
    mha_encode_options o = MHA_ENCODE_DEFAULTS;
    mha_encoding *e = NULL;
    size_t length = 0, pair = 0;
    if (!nn_json_string(&k->at[TEXT], r->scratch, &length) ||
        (k->has[PAIR] && !nn_json_string(&k->at[PAIR], r->second, &pair))) {
        snprintf(r->why, sizeof r->why, "the text of the case cannot be read");
        return false;
    }
    o.special = !k->has[SPECIAL] || nn_json_peek(&k->at[SPECIAL]) == 't';
    o.literal = k->has[LITERAL] && nn_json_peek(&k->at[LITERAL]) == 't';
    if (mha_encoding_make(r->ctx, &e, r->tokenizer, r->scratch, length, k->has[PAIR] ? r->second : NULL, pair, &o)) {
        snprintf(r->why, sizeof r->why, "%s", mha_context_error(r->ctx));
        return false;
    }
    bool passed = compare_tokens(r, k, e) && compare_decoded(r, k, e);
    mha_encoding_free(e);
    return passed;
}

/* All cases of the file's text. */
static void run_all(runner *r, const char *name, const char *text, size_t size, conformance_count *count)
{
    nn_json j = nn_json_open(text, size);
    size_t number = 0;
    j.nul = true;
    nn_json_enter(&j, '[');
    while (nn_json_more(&j, ']')) {
        kase k;
        if (!read_case(&j, &k)) break;
        bool passed = run_case(r, &k);
        cli_print(stdout, "%s %s %zu\n", passed ? "  ok   " : "FAILED ", name, ++number);
        if (!passed) cli_print(stdout, "        %s\n", r->why);
        count->passed += passed;
        count->failed += !passed;
    }
    if (nn_json_end(&j)) return;
    cli_print(stdout, "FAILED  %s: cases.json: %s\n", name, *j.why ? j.why : "a case lacks its text or its ids");
    count->failed++;
}

void conformance_run_tokenizer(mha_context *ctx, const char *folder, const char *name, conformance_count *count)
{
    char path[4096], error[400] = "not enough memory";
    size_t size = 0;
    runner r = {.ctx = ctx};
    char *text = NULL;
    if (join_path(path, sizeof path, folder, name, "cases.json"))
        nn_source_text(&text, path, MOST, &size, error, sizeof error);
    if (text) {
        r.scratch = malloc(size + 1);
        r.second = malloc(size + 1);
        r.decoded = malloc(MOST);
    }
    if (!r.scratch || !r.second || !r.decoded) {
        cli_print(stdout, "FAILED  %s\n        %s\n", name, error);
        count->failed++;
    } else if (!join_path(path, sizeof path, folder, name, "") || mha_tokenizer_open(ctx, &r.tokenizer, path, NULL)) {
        cli_print(stdout, "FAILED  %s\n", name);
        cli_print(stdout, "        %s\n", mha_context_error(ctx));
        count->failed++;
    } else {
        run_all(&r, name, text, size, count);
    }
    mha_tokenizer_free(r.tokenizer);
    free(r.decoded);
    free(r.second);
    free(r.scratch);
    free(text);
}
