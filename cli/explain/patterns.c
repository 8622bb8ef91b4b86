/* Embeddings and heads that are written by hand.
 *
 * The position of a word is the tip of a clock's hand: word t points at t o'clock, (right, up) = (sin, cos) of 30t
 * degrees. Two hands h hours apart have the dot product cos(30h), so a query made of the hand matches the key with the
 * same position, and rotating the query by an hour matches the neighbour. The clock has more hours than the sentence has
 * words; otherwise the last word would be a neighbour of the first.
 *
 * explain_text has heads of its own. Its words also have five marks (subject, verb, main clause, relative clause, the
 * noun that the relative clause describes), and two numbers per head are enough for what they do:
 *
 *     partner   keys are corners of a square: subject or verb to the right or left, main or relative clause up or down.
 *               Queries are the same corners mirrored, so that a subject matches the verb of its own clause. A word
 *               that is neither lies between two corners and matches all words of its clause.
 *     clause    queries and keys of the noun and of the clause are exchanged: each matches the other
 *     whole     a query of zeros: all scores are 0 and all weights equal
 *
 * A value is (1, 0) for a subject and (0, 1) for a verb.
 *
 * Any other sentence gets patterns that need no grammar: the next, previous and first position, the same word, and the
 * whole. Its words are their position, a constant, a second hand that is the same for the same word, and numbers drawn
 * from the word's letters. Values, W_O and further heads keep the random numbers of mha_layer_initialize.
 *
 * Gains set how peaked a head is. They are low enough that a second weight is visible beside the largest one. */
#include "cli/explain/explain.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const char explain_text[] = "The cat that I saw yesterday ran away";

enum { X, Y, ONE };                               /* of all sentences */
enum { SUBJECT = 3, VERB, MAIN, RELATIVE, NOUN }; /* of explain_text */
enum { WORD_X = 3, WORD_Y, CONTENT };             /* of others */
enum { NEXT, PARTNER, CLAUSE, WHOLE };            /* heads of explain_text */
enum { IS_SUBJECT, IS_VERB };                     /* the two numbers of its values */

static const float next_gain = 22, partner_gain = 3, clause_gain = 5;

/* Adds to the matrix of a head, from the left (n) to (d). */
static void add_to_weight(const explain_model *m, const mha_tensor *w, int h, int n, int d, float value)
{
    ((float *)w->data)[(h * m->D + d) * m->M + n] += value;
}

static void clear(const explain_model *m, const mha_tensor *w, int h)
{
    memset((float *)w->data + h * m->D * m->M, 0, sizeof(float) * (size_t)(m->D * m->M));
}

/* ---- Hands ------------------------------------------------------------------------------------------------------ */

static const double turn_radians = 6.28318530717958647693;

/* Sine of `part` of `whole` parts of a turn, exact on the twelve hours of a clock, so that the printed numbers are exact,
 * too. */
static float turn_sine(int part, int whole)
{
    static const float quarter[] = {0, 0.5f, 0.866025404f, 1};
    if (12 % whole) return (float)sin(turn_radians * part / whole);
    int hour = ((part * (12 / whole)) % 12 + 12) % 12, fold = hour % 6;
    float sine = quarter[fold <= 3 ? fold : 6 - fold];
    return hour < 6 ? sine : -sine;
}

static float turn_cosine(int part, int whole)
{
    if (12 % whole) return (float)cos(turn_radians * part / whole);
    return turn_sine(part * (12 / whole) + 3, 12);
}

/* Adds to w what turns the hand in the slots `from` and `from + 1` ahead by a part of a turn, and scales it. */
static void add_rotation(const explain_model *m, const mha_tensor *w, int h, int from, int part, int whole, float gain)
{
    add_to_weight(m, w, h, from, 0, gain * turn_cosine(part, whole));
    add_to_weight(m, w, h, from + 1, 1, gain * turn_cosine(part, whole));
    add_to_weight(m, w, h, from, 1, -gain * turn_sine(part, whole));
    add_to_weight(m, w, h, from + 1, 0, gain * turn_sine(part, whole));
}

static int hours(const explain_model *m)
{
    int most = m->T > m->K ? m->T : m->K;
    return most + 2 > 12 ? most + 2 : 12;
}

/* ---- The sentence with heads of its own ------------------------------------------------------------------------- */

static void fill_own_words(explain_model *m)
{
    static const char *const slots[] = {"right", "up", "one", "subj", "verb", "main", "rel", "noun"};
    static const char *const roles[] = {"main", "subj main noun", "rel", "subj rel", "verb rel",
                                        "rel",  "verb main",      "main"};
    for (int n = 0; n < m->M; n++) snprintf(m->slot[n], sizeof m->slot[n], "%s", slots[n]);
    for (int t = 0; t < m->T; t++) {
        float *x = m->x + t * m->M;
        m->roles[t] = roles[t];
        x[X] = turn_sine(t + 1, 12);
        x[Y] = turn_cosine(t + 1, 12);
        x[ONE] = 1;
        for (int n = SUBJECT; n <= NOUN; n++) x[n] = strstr(roles[t], slots[n]) ? 1.0f : 0.0f;
    }
}

static void fill_own_heads(explain_model *m)
{
    static const explain_head heads[] = {
        {"next", "the next word", "q: the hand, one hour ahead   k: the hand"},
        {"partner", "subject and verb of one clause", "q, k: corners of a square, mirrored"},
        {"clause", "the relative clause and its noun", "q, k: noun and clause, exchanged"},
        {"whole", "the whole sentence", "q: zeros, so all scores are equal"},
    };
    const mha_tensor *q = &m->weights_of.q_weight, *k = &m->weights_of.k_weight, *v = &m->weights_of.v_weight;
    for (int h = 0; h < m->H; h++) {
        m->head[h] = heads[h];
        clear(m, q, h), clear(m, k, h), clear(m, v, h);
        add_to_weight(m, v, h, SUBJECT, IS_SUBJECT, 1);
        add_to_weight(m, v, h, VERB, IS_VERB, 1);
    }
    add_rotation(m, q, NEXT, X, 1, 12, next_gain);
    add_rotation(m, k, NEXT, X, 0, 12, 1);
    for (int side = -1; side <= 1; side += 2) {
        add_to_weight(m, k, PARTNER, side > 0 ? SUBJECT : VERB, 0, (float)side);
        add_to_weight(m, q, PARTNER, side > 0 ? VERB : SUBJECT, 0, partner_gain * (float)side);
        add_to_weight(m, k, PARTNER, side > 0 ? MAIN : RELATIVE, 1, (float)side);
        add_to_weight(m, q, PARTNER, side > 0 ? MAIN : RELATIVE, 1, partner_gain * (float)side);
    }
    add_to_weight(m, q, CLAUSE, NOUN, 0, clause_gain);
    add_to_weight(m, q, CLAUSE, RELATIVE, 1, clause_gain);
    add_to_weight(m, k, CLAUSE, RELATIVE, 0, 1);
    add_to_weight(m, k, CLAUSE, NOUN, 1, 1);
    add_rotation(m, k, WHOLE, X, 0, 12, 1);
}

/* Adds to W_O. */
static void add_out(explain_model *m, int head, int part, int n, float value)
{
    ((float *)m->weights_of.out_weight.data)[n * m->H * m->D + head * m->D + part] += value;
}

/* The first two columns of W_O find the main clause: its subject has a verb as its partner, its verb a subject, and
 * neither belongs to a clause that describes a subject. The other three pairs are the results of the heads `next` and
 * `clause`, and the mean of all heads. */
static void fill_own_output(explain_model *m)
{
    memset(m->weights_of.out_weight.data, 0, sizeof(float) * (size_t)(m->M * m->H * m->D));
    add_out(m, PARTNER, IS_VERB, EXPLAIN_DOER, 0.5f);
    add_out(m, PARTNER, IS_SUBJECT, EXPLAIN_DEED, 0.5f);
    for (int n = EXPLAIN_DOER; n <= EXPLAIN_DEED; n++) {
        add_out(m, CLAUSE, IS_VERB, n, 0.5f);
        add_out(m, CLAUSE, IS_SUBJECT, n, -0.5f);
    }
    for (int d = 0; d < 2; d++) {
        add_out(m, NEXT, d, 2 + d, 1);
        add_out(m, CLAUSE, d, 4 + d, 1);
        for (int h = 0; h < m->H; h++) add_out(m, h, d, 6 + d, 0.25f);
    }
}

/* ---- Any sentence ----------------------------------------------------------------------------------------------- */

/* A number from -1 to 1 with one or two decimals, from the letters of a word. */
static float content(const char *word, int n)
{
    uint64_t hash = UINT64_C(14695981039346656037); /* FNV-1a */
    for (; *word; word++) hash = (hash ^ (unsigned char)*word) * UINT64_C(1099511628211);
    hash += (uint64_t)n * UINT64_C(0x9E3779B97F4A7C15); /* and the end of SplitMix64 */
    hash = (hash ^ (hash >> 30)) * UINT64_C(0xBF58476D1CE4E5B9);
    hash = (hash ^ (hash >> 27)) * UINT64_C(0x94D049BB133111EB);
    return (float)((int)((hash ^ (hash >> 31)) % 41) - 20) / 20;
}

/* The first word of a sentence that is the same; -1 if there is none. */
static int find_word(const explain_sentence *s, const char *word)
{
    for (int i = 0; i < s->count; i++)
        if (explain_same(s->word[i], word)) return i;
    return -1;
}

/* The parts of the circle for the hands of words, and the one of a word: its first place among the queries. With --cross,
 * a word that the other sentence does not have gets -1, which means no hand: it matches no word, and no word matches it. */
static int circle(const explain_model *m) { return m->T > 4 ? m->T : 4; }

static int identity(const explain_model *m, const char *word)
{
    return find_word(&m->key, word) < 0 ? -1 : find_word(&m->query, word);
}

static void fill_words(const explain_model *m, float *to, const explain_sentence *s)
{
    for (int t = 0; t < s->count; t++, to += m->M) {
        int same = identity(m, s->word[t]);
        to[X] = turn_sine(t + 1, hours(m));
        to[Y] = turn_cosine(t + 1, hours(m));
        to[ONE] = 1;
        to[WORD_X] = same < 0 ? 0 : turn_sine(same, circle(m));
        to[WORD_Y] = same < 0 ? 0 : turn_cosine(same, circle(m));
        for (int n = CONTENT; n < m->M; n++) to[n] = content(s->word[t], n);
    }
}

static void name_slots(explain_model *m)
{
    static const char *const names[] = {"pos-x", "pos-y", "one", "word-x", "word-y"};
    for (int n = 0; n < m->M; n++)
        if (n < CONTENT) snprintf(m->slot[n], sizeof m->slot[n], "%s", names[n]);
        else snprintf(m->slot[n], sizeof m->slot[n], "c%d", n - CONTENT + 1);
}

/* The gain at which the score of the key that a hand points at is 2 more than that of its neighbour. */
static float gain_of(const explain_model *m, int whole)
{
    return (float)(2 * sqrt(m->D) / (1 - (double)turn_cosine(1, whole)));
}

typedef enum pattern { FOLLOWING, PRECEDING, FIRST, SAME, ALL, PATTERNS } pattern;

static void fill_pattern(explain_model *m, int h)
{
    static const explain_head heads[PATTERNS] = {
        [FOLLOWING] = {"next", "the next word", "q: position, one step ahead   k: position"},
        [PRECEDING] = {"previous", "the previous word", "q: position, one step back   k: position"},
        [FIRST] = {"first", "the first word", "q: the first position   k: position"},
        [SAME] = {"same", "the same word", "q, k: the hand of the word"},
        [ALL] = {"whole", "the whole sentence", "q: zeros, so all scores are equal"},
    };
    const mha_tensor *q = &m->weights_of.q_weight, *k = &m->weights_of.k_weight;
    int whole = h == SAME ? circle(m) : hours(m);
    float gain = gain_of(m, whole);
    m->head[h] = heads[h];
    clear(m, q, h), clear(m, k, h);
    add_rotation(m, k, h, h == SAME ? WORD_X : X, 0, whole, 1);
    if (h == FOLLOWING || h == PRECEDING) add_rotation(m, q, h, X, h == FOLLOWING ? 1 : -1, whole, gain);
    if (h == SAME) add_rotation(m, q, h, WORD_X, 0, whole, gain);
    if (h == FIRST) {
        add_to_weight(m, q, h, ONE, 0, gain * turn_sine(1, whole));
        add_to_weight(m, q, h, ONE, 1, gain * turn_cosine(1, whole));
    }
}

/* In another sentence there is no next word, but a next position. */
static void name_across(explain_model *m)
{
    static const char *const habits[PATTERNS] = {[FOLLOWING] = "the next position",
                                                 [PRECEDING] = "the previous position",
                                                 [FIRST] = "the first word of the other",
                                                 [SAME] = "the same word in the other",
                                                 [ALL] = "the whole of the other"};
    for (int h = 0; h < m->patterns; h++) m->head[h].habit = habits[h];
}

void explain_fill(explain_model *m)
{
    if (m->own) {
        m->patterns = m->H;
        fill_own_words(m);
        fill_own_heads(m);
        fill_own_output(m);
        return;
    }
    m->patterns = m->H < PATTERNS ? m->H : PATTERNS;
    name_slots(m);
    fill_words(m, m->x, &m->query);
    if (m->cross) fill_words(m, m->z, &m->key);
    for (int h = 0; h < m->patterns; h++) fill_pattern(m, h);
    for (int h = m->patterns; h < m->H; h++)
        m->head[h] = (explain_head){"random", "whatever its random numbers give", "q, k: as before any training"};
    if (m->cross) name_across(m);
}
