/* The numbers of `mha explain --json` against the oracle: from the embeddings and weights that it prints, ref/ computes
 * every stage in float64. Also: who sees whom, what the heads of any sentence attend to, and the diagrams. */
#include "cli/command.h"
#include "cli/page.h"
#include "layer.h"

enum { MOST = 1 << 22, WORDS = 24, WIDTH = 64, HEADS = 16 };

/* ---- Reading ---------------------------------------------------------------------------------------------------- */

static char text[MOST];

/* Runs it and keeps all of what it prints. */
static bool explain(const char *args)
{
    char line[1000];
    snprintf(line, sizeof line, "explain %s", args);
    const said *it = command("", line);
    slurp(in_folder("out"), text, sizeof text);
    return expect(it->status == 0 && !*it->err, "%s: exit %d, %s", args, it->status, it->err);
}

/* The value of a key, from the first place after `from` where it stands. */
static const char *value_of(const char *from, const char *key)
{
    char quoted[40];
    snprintf(quoted, sizeof quoted, "\"%s\": ", key);
    const char *at = from ? strstr(from, quoted) : NULL;
    return expect(at, "no %s", key) ? at + strlen(quoted) : "";
}

/* The numbers of a nested array; null is -infinity. Returns how many there are. */
static int numbers_at(const char *at, double *out, int most)
{
    int depth = 0, count = 0;
    do {
        char *end = NULL;
        if (*at == '[') depth++, at++;
        else if (*at == ']') depth--, at++;
        else if (strncmp(at, "null", 4) == 0) out[count++] = -INFINITY, at += 4;
        else if (*at == ',' || *at == ' ') at++;
        else if ((out[count] = strtod(at, &end)), end > at) count++, at = end;
        else break;
    } while (depth > 0 && count < most);
    return count;
}

/* Everything that was printed, in float64. */
typedef struct printed {
    int T, K, M, H, D;
    bool causal;
    double x[WORDS * WIDTH], z[WORDS * WIDTH], concat[WORDS * WIDTH], y[WORDS * WIDTH], w_o[WIDTH * WIDTH];
    double w_q[HEADS][WIDTH * WIDTH], w_k[HEADS][WIDTH * WIDTH], w_v[HEADS][WIDTH * WIDTH]; /* (M,D) of a head */
    double q[HEADS][WORDS * WIDTH], k[HEADS][WORDS * WIDTH], v[HEADS][WORDS * WIDTH], out[HEADS][WORDS * WIDTH];
    double scores[HEADS][WORDS * WORDS], scaled[HEADS][WORDS * WORDS], masked[HEADS][WORDS * WORDS];
    double weights[HEADS][WORDS * WORDS];
} printed;

static void read_array(const char *from, const char *key, double *out, int rows, int columns, int most)
{
    int count = numbers_at(value_of(from, key), out, most);
    expect(count == rows * columns, "%s has %d numbers, not %d x %d", key, count, rows, columns);
}

static const char *head_at(int h)
{
    char number[32];
    snprintf(number, sizeof number, "{\"number\": %d,", h + 1);
    return strstr(text, number);
}

static bool read_printed(printed *p)
{
    *p = (printed){.M = (int)strtol(value_of(text, "width"), NULL, 10),
                   .H = (int)strtol(value_of(text, "heads"), NULL, 10),
                   .D = (int)strtol(value_of(text, "head_width"), NULL, 10),
                   .causal = strncmp(value_of(text, "causal"), "true", 4) == 0};
    bool cross = strncmp(value_of(text, "z"), "null", 4) != 0;
    if (!expect(p->H > 0 && p->H * p->D == p->M, "%d heads of %d in %d", p->H, p->D, p->M)) return false;
    p->T = numbers_at(value_of(text, "x"), p->x, WORDS * WIDTH) / p->M;
    p->K = cross ? numbers_at(value_of(text, "z"), p->z, WORDS * WIDTH) / p->M : p->T;
    if (!cross) memcpy(p->z, p->x, sizeof p->z);
    read_array(text, "concat", p->concat, p->T, p->M, WORDS * WIDTH);
    read_array(text, "y", p->y, p->T, p->M, WORDS * WIDTH);
    read_array(text, "w_o", p->w_o, p->M, p->M, WIDTH * WIDTH);
    for (int h = 0; h < p->H; h++) {
        const char *at = head_at(h);
        if (!expect(at, "no head %d", h + 1)) return false;
        read_array(at, "w_q", p->w_q[h], p->M, p->D, WIDTH * WIDTH);
        read_array(at, "w_k", p->w_k[h], p->M, p->D, WIDTH * WIDTH);
        read_array(at, "w_v", p->w_v[h], p->M, p->D, WIDTH * WIDTH);
        read_array(at, "q", p->q[h], p->T, p->D, WORDS * WIDTH);
        read_array(at, "k", p->k[h], p->K, p->D, WORDS * WIDTH);
        read_array(at, "v", p->v[h], p->K, p->D, WORDS * WIDTH);
        read_array(at, "out", p->out[h], p->T, p->D, WORDS * WIDTH);
        read_array(at, "scores", p->scores[h], p->T, p->K, WORDS * WORDS);
        read_array(at, "scaled", p->scaled[h], p->T, p->K, WORDS * WORDS);
        read_array(at, "masked", p->masked[h], p->T, p->K, WORDS * WORDS);
        read_array(at, "weights", p->weights[h], p->T, p->K, WORDS * WORDS);
    }
    return true;
}

/* ---- The oracle ------------------------------------------------------------------------------------------------- */

/* The layer's weight (H*D,M) from the matrices (M,D) of all heads. */
static void stack(double *to, double from[HEADS][WIDTH * WIDTH], const printed *p)
{
    for (int h = 0; h < p->H; h++)
        for (int d = 0; d < p->D; d++)
            for (int n = 0; n < p->M; n++) to[(h * p->D + d) * p->M + n] = from[h][n * p->D + d];
}

static void same(const char *what, const double *is, const double *want, int count, double bound)
{
    for (int i = 0; i < count; i++)
        if (!expect(is[i] == want[i] || fabs(is[i] - want[i]) <= bound, "%s %d: %.9g, not %.9g within %g", what, i,
                    is[i], want[i], bound))
            return;
}

/* q . k in float32 is off by a few units of the last place of sum |q| |k|; so is a weight's logarithm. */
static double score_error(const printed *p, const double *q, const double *k)
{
    double largest = 0;
    for (int i = 0; i < p->T; i++)
        for (int j = 0; j < p->K; j++) {
            double sum = 0;
            for (int d = 0; d < p->D; d++) sum += fabs(q[i * p->D + d] * k[j * p->D + d]);
            largest = fmax(largest, sum);
        }
    return (8 + p->D) * 0x1p-24 * largest;
}

/* One head, by the oracle's attention over q, k and v, which the oracle projects itself. */
static void check_head(const printed *p, const ref_layer *l, int h)
{
    static double q[WORDS * WIDTH], k[WORDS * WIDTH], v[WORDS * WIDTH], out[WORDS * WIDTH];
    static double stage[REF_STAGES][WORDS * WORDS], raw[WORDS * WORDS];
    ref_projection of_q = {.heads = p->H, .width = p->D, .rows = p->T, .in = p->M, .x = p->x, .weight = l->q_weight};
    ref_projection of_k = {.heads = p->H, .width = p->D, .rows = p->K, .in = p->M, .x = p->z, .weight = l->k_weight};
    ref_projection of_v = of_k;
    of_v.weight = l->v_weight;
    for (int t = 0; t < p->T; t++) ref_project(q + t * p->D, &of_q, h, t);
    for (int t = 0; t < p->K; t++) ref_project(k + t * p->D, &of_k, h, t), ref_project(v + t * p->D, &of_v, h, t);
    ref_attention a = {.B = 1, .H = 1, .G = 1, .Tq = p->T, .Tk = p->K, .D = p->D, .E = p->D, .q = q, .k = k, .v = v};
    a.scale = NAN, a.causal = p->causal, a.window_left = a.window_right = -1;
    ref_result result = {.out = out};
    for (int s = 0; s < REF_STAGES; s++) result.stage[s] = stage[s];
    ref_attention_forward(&a, &result);
    for (int i = 0; i < p->T * p->K; i++) raw[i] = stage[REF_SCALED][i] * sqrt(p->D);
    double error = score_error(p, q, k) + 1e-7, size = 0;
    for (int i = 0; i < p->K * p->D; i++) size = fmax(size, fabs(v[i]));
    same("q", p->q[h], q, p->T * p->D, error);
    same("k", p->k[h], k, p->K * p->D, 4e-6);
    same("v", p->v[h], v, p->K * p->D, 4e-6);
    same("scores", p->scores[h], raw, p->T * p->K, error);
    same("scaled", p->scaled[h], stage[REF_SCALED], p->T * p->K, error);
    same("masked", p->masked[h], stage[REF_MASKED], p->T * p->K, error);
    same("weights", p->weights[h], stage[REF_SOFTMAX], p->T * p->K, error);
    same("out", p->out[h], out, p->T * p->D, 2 * (error + 1e-6) * size * p->K);
    for (int t = 0; t < p->T; t++) same("concat", p->concat + (t * p->H + h) * p->D, p->out[h] + t * p->D, p->D, 0);
}

static void check_printed(const char *args)
{
    static printed p;
    static double w_q[WIDTH * WIDTH], w_k[WIDTH * WIDTH], w_v[WIDTH * WIDTH], w_o[WIDTH * WIDTH], y[WORDS * WIDTH];
    if (!explain(args) || !read_printed(&p)) return;
    expect(*json_field(text, "words") == '[', "no words");
    stack(w_q, p.w_q, &p);
    stack(w_k, p.w_k, &p);
    stack(w_v, p.w_v, &p);
    for (int e = 0; e < p.M; e++)
        for (int n = 0; n < p.M; n++) w_o[n * p.M + e] = p.w_o[e * p.M + n];
    ref_layer l = {
        .B = 1, .Tq = p.T, .Tk = p.K, .M = p.M, .Mk = p.M, .Mv = p.M, .H = p.H, .G = p.H, .D = p.D, .E = p.D};
    l.query = p.x, l.key = l.value = p.z;
    l.q_weight = w_q, l.k_weight = w_k, l.v_weight = w_v, l.out_weight = w_o;
    l.attention.scale = NAN, l.attention.causal = p.causal;
    l.attention.window_left = l.attention.window_right = -1;
    double error = 1e-5;
    for (int h = 0; h < p.H; h++) {
        check_head(&p, &l, h);
        error = fmax(error, 8 * p.K * score_error(&p, p.q[h], p.k[h]));
    }
    ref_layer_forward(&l, y, NULL, NULL);
    same("y", p.y, y, p.T * p.M, error);
}

TEST(every_number_is_that_of_the_oracle)
{
    check_printed("--json");
    check_printed("--json --causal");
    check_printed("--json --heads 2");
    check_printed("--json --text 'to be or not to be'");
    check_printed("--json --text 'to be or not to be' --causal --heads 3 --width 12");
    check_printed("--json --text 'the cat' --cross 'a dog and the cat' --heads 5");
    check_printed("--json --text 'a' --heads 16 --width 64");
    check_printed("--json --text 'a b c d e f g h i j k l m n o p q r s t u v w x' --heads 8 --width 64 --causal");
    check_printed(
        "--json --text 'a b c' --cross 'a b c d e f g h i j k l m n o p q r s t u v w x' --heads 1 --width 64");
}

/* ---- Heads ------------------------------------------------------------------------------------------------------ */

/* The key with the largest weight. */
static int strongest(const printed *p, int h, int i)
{
    int best = 0;
    for (int j = 1; j < p->K; j++)
        if (p->weights[h][i * p->K + j] > p->weights[h][i * p->K + best]) best = j;
    return best;
}

TEST(heads_of_any_sentence_do_what_they_say)
{
    static printed p;
    static const char *const names[] = {"next", "previous", "first", "same", "whole", "random"};
    for (int words = 1; words <= WORDS; words++) {
        char args[200];
        int n = snprintf(args, sizeof args, "--json --heads 6 --width 12 --text '");
        for (int i = 0; i < words; i++) n += snprintf(args + n, sizeof args - (size_t)n, "%c ", 'a' + i);
        snprintf(args + n, sizeof args - (size_t)n, "'");
        if (!explain(args) || !read_printed(&p)) return;
        for (int h = 0; h < 6; h++) {
            char name[40];
            snprintf(name, sizeof name, "\"name\": \"%s\"", names[h]);
            expect(strncmp(strchr(head_at(h), ',') + 2, name, strlen(name)) == 0, "head %d is no %s", h, names[h]);
            expect(strncmp(value_of(head_at(h), "random"), h == 5 ? "true" : "false", 4) == 0, "head %d", h);
        }
        for (int i = 0; i < words; i++) {
            int want[] = {i + 1 < words ? i + 1 : i, i ? i - 1 : 0, 0, i};
            for (int h = 0; h < 4; h++)
                expect(strongest(&p, h, i) == want[h] && p.weights[h][i * words + want[h]] > 0.6,
                       "%d words, %s: word %d attends to %d with %g", words, names[h], i, strongest(&p, h, i),
                       p.weights[h][i * words + want[h]]);
            for (int j = 0; j < words; j++)
                expect(fabs(p.weights[4][i * words + j] - 1.0 / words) < 1e-6, "not the whole");
        }
    }
}

/* Words are the same whatever their case and the punctuation around them; in another sentence, a word that is not there
 * is looked for in vain. */
TEST(the_same_word_is_found_again)
{
    static printed p;
    if (!explain("--json --text 'To be, or not to \"BE\"'") || !read_printed(&p)) return;
    expect(fabs(p.weights[3][0 * 6 + 4] - p.weights[3][0]) < 1e-6 && p.weights[3][4] > 0.35, "To: %g", p.weights[3][4]);
    expect(fabs(p.weights[3][5 * 6 + 1] - p.weights[3][5 * 6 + 5]) < 1e-6, "be: %g", p.weights[3][5 * 6 + 1]);
    if (!explain("--json --text 'the cat sat' --cross 'a dog and the cat'") || !read_printed(&p)) return;
    expect(strongest(&p, 3, 0) == 3 && strongest(&p, 3, 1) == 4, "the: %d, cat: %d", strongest(&p, 3, 0),
           strongest(&p, 3, 1));
    for (int j = 0; j < 5; j++) expect(fabs(p.weights[3][2 * 5 + j] - 0.2) < 1e-6, "sat is found");
}

TEST(a_causal_mask_hides_later_words)
{
    static printed p;
    if (!explain("--json --causal --heads 4 --text 'a b c d e f g h i j'") || !read_printed(&p)) return;
    for (int h = 0; h < p.H; h++)
        for (int i = 0; i < p.T; i++)
            for (int j = 0; j < p.T; j++) {
                int at = i * p.T + j;
                expect((p.weights[h][at] > 0 || isfinite(p.masked[h][at])) == (j <= i), "word %d sees %d", i, j);
                expect(isfinite(p.scaled[h][at]), "a score before the mask is hidden");
            }
}

TEST(words_of_other_scripts)
{
    if (!explain("--json --text '\u79c1\u306f\u732b\u3000ein Stra\u00dfe \u0434\u043e\u043c\u00a0cafe\u0301'")) return;
    const char *want =
        "\"words\": [\"\u79c1\", \"\u306f\", \"\u732b\", \"ein\", \"Stra\u00dfe\", \"\u0434\u043e\u043c\", "
        "\"cafe\u0301\"],";
    expect(strstr(text, want), "%.200s", text);
    expect(explain("--json --text '\u05e9\u05dc\u05d5\u05dd'"), "right to left is refused as JSON");
}

/* ---- Diagrams --------------------------------------------------------------------------------------------------- */

static void draw(const char *args, const char *file)
{
    char line[400];
    snprintf(line, sizeof line, "%s --diagram -o '%s'", args, in_folder(file));
    if (explain(line)) slurp(in_folder(file), text, sizeof text);
}

TEST(an_svg_has_the_real_shapes)
{
    static const char *const words[] = {"W_Q",
                                        "S = Q K",
                                        "softmax",
                                        "(4 heads, 8, 2)",
                                        "(4 heads, 8, 8)",
                                        ">partner<",
                                        ">whole<",
                                        ">concat<",
                                        "W_O",
                                        "prefers-color-scheme",
                                        ">The cat that I saw yesterday ran away<"};
    draw("", "flow.svg");
    expect_closed(text);
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) expect(strstr(text, words[i]), "no %s", words[i]);
    expect(!strstr(text, "causal mask") && count_of(text, "shape-rendering") == 4, "a mask, or not four maps");
    draw("--causal --heads 2 --width 6", "flow.svg");
    expect(strstr(text, "causal mask") && strstr(text, "(2 heads, 8, 3)"), "no mask, or another shape");
    draw("--text '<b>\"1\" & 2</b>' --cross 'x y z' --heads 16", "flow.svg");
    expect_closed(text);
    expect(strstr(text, "&lt;b&gt;&quot;1&quot; &amp; 2&lt;/b&gt;") && !strstr(text, "<b>"), "not escaped");
    expect(strstr(text, "(16 heads, 3, 3)") && !strstr(text, "nan") && !strstr(text, "inf"), "a shape or a number");
}

/* Every line is one that Mermaid knows, and arrows join nodes that there are. */
static void check_mermaid(void)
{
    int nodes = 0, links = 0, line = 0, from, to, at;
    char known[100] = "";
    for (char *next, *s = text; *s; s = next, line++) {
        next = strchr(s, '\n');
        if (!expect(next, "the last line has no end")) return;
        *next++ = 0;
        if (sscanf(s, "    n%d --> n%d%n", &from, &to, &at) == 2) // NOLINT(cert-err34-c)
            links += expect(!s[at] && known[from] && known[to], "%s", s);
        else if (sscanf(s, "    n%d%n", &from, &at) == 1) // NOLINT(cert-err34-c)
            nodes +=
                expect(count_of(s, "\"") == 2 && strstr(s, ":::") && !strpbrk(strchr(s, '"') + 1, "`&\\|"), "%s", s) &&
                (known[from] = 1);
        else if (line < 4)
            expect(!strcmp(s, line == 3 ? "flowchart TD" : "---") || (line == 1 && !strncmp(s, "title: '", 8)), "%s",
                   s);
        else expect(strncmp(s, "    classDef ", 13) == 0, "%s", s);
    }
    expect(nodes > 10 && links >= nodes, "%d nodes, %d arrows", nodes, links);
}

TEST(mermaid_can_be_parsed)
{
    draw("", "flow.mmd");
    expect(strstr(text, "\"Q<br/>(4 heads, 8, 2)\"]:::data"), "no Q");
    check_mermaid();
    draw("--text \"it's a \\\"b\\\" #c <d> f&g;h|i\" --causal", "flow.mmd");
    expect(strstr(text, "---\ntitle: 'it''s a \"b\" #c <d> f&g;h|i'\n---\n") == text, "%.80s", text);
    check_mermaid();
    if (explain("--diagram --cross 'a b'")) check_mermaid();
}
