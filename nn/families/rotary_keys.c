/* The rotary embedding in config.json, in the spelling of version 4 of `transformers` (rope_theta, rope_scaling) and of
 * version 5 (rope_parameters, with one object for each type of layer where they differ). */
#include "families/family.h"
#include "io/failure.h"
#include "io/json.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

typedef struct reading {
    const nn_family *f;
    const nn_config *c;
    nn_failure to;
    int64_t width; /* of a head */
    nn_fact said;  /* the object that says it */
    bool local;    /* of sliding attention */
} reading;

/* A number of the object, else of the file; `absent` if there is none. */
static bool real_of(const reading *r, const char *key, double absent, double *value)
{
    nn_fact f = nn_fact_find(r->said, key);
    *value = absent;
    if (!f.text || nn_fact_is_null(f)) return true;
    return nn_fact_real(f, value) || nn_fail(&r->to, "the rotary embedding's %s must be a number", key);
}

static bool read_base(const reading *r, nn_attention_config *a)
{
    const nn_rotary_keys *k = &r->f->rotary;
    const char *key = r->local ? k->local_key : k->theta_key;
    double theta = r->local && k->local > 0 ? k->local : k->theta, part = k->part > 0 ? k->part : 1;
    nn_fact top = r->local ? nn_fact_of(NULL, 0) : nn_config_find(r->c, "rope_theta");
    if (!top.text && key) top = nn_config_find(r->c, key);
    nn_fact_real(top, &theta);
    nn_fact_real(nn_config_find(r->c, "partial_rotary_factor"), &part);
    if (k->part_key) nn_fact_real(nn_config_find(r->c, k->part_key), &part);
    if (!real_of(r, "rope_theta", theta, &a->rotary_base) || !real_of(r, "partial_rotary_factor", part, &part))
        return false;
    if (!(k->part > 0) && part != 1) return nn_fail(&r->to, "partial_rotary_factor is not supported in this family");
    if (part != 1 && !r->width && !k->width_key)
        return nn_fail(&r->to, "a part of each head turns, but the width of a head is not known");
    if (!(a->rotary_base > 0) || !(part > 0) || part > 1)
        return nn_fail(&r->to, "the rotary embedding needs a rope_theta above 0 and a part of a head from 0 to 1");
    a->rotary_width = (int64_t)((double)r->width * part);
    if (!k->width_key) return true;
    a->rotary_width = k->width;
    nn_fact width = nn_config_find(r->c, k->width_key);
    if (!width.text || (nn_fact_int(width, &a->rotary_width) && a->rotary_width > 0)) return true;
    return nn_fail(&r->to, "%s must be a whole number above 0", k->width_key);
}

/* Tokens of training: of the file, of the object, or the positions. */
static bool read_trained(const reading *r, nn_rotary_config *to, bool dynamic)
{
    nn_fact own = nn_config_find(r->c, "original_max_position_embeddings"), most = {NULL, 0};
    if (!own.text) own = nn_fact_find(r->said, "original_max_position_embeddings");
    most = nn_config_find(r->c, "max_position_embeddings");
    if (dynamic || !own.text || nn_fact_is_null(own)) own = most;
    return nn_fact_int(own, &to->trained) ||
           nn_fail(&r->to, "a scaled rotary embedding needs original_max_position_embeddings");
}

/* The factor where the file does not say it: how many times longer sequences may be than those of training. */
static double longer_by(const reading *r, const nn_rotary_config *to)
{
    int64_t most = 0;
    nn_fact_int(nn_config_find(r->c, "max_position_embeddings"), &most);
    return to->trained > 0 ? (double)most / (double)to->trained : 1;
}

static double yarn_share(double factor, double by) { return factor <= 1 ? 1 : 0.1 * by * log(factor) + 1; }

static bool read_yarn(const reading *r, nn_rotary_config *to)
{
    double up, down;
    to->truncate = true;
    nn_fact_truth(nn_fact_find(r->said, "truncate"), &to->truncate);
    if (!read_trained(r, to, false) || !real_of(r, "factor", longer_by(r, to), &to->factor) ||
        !real_of(r, "beta_fast", 32, &to->fast) || !real_of(r, "beta_slow", 1, &to->slow) ||
        !real_of(r, "mscale", 0, &up) || !real_of(r, "mscale_all_dim", 0, &down))
        return false;
    bool both = up != 0 && down != 0;
    double usual = both ? yarn_share(to->factor, up) / yarn_share(to->factor, down) : yarn_share(to->factor, 1);
    if (to->fast == 0) to->fast = 32;
    if (to->slow == 0) to->slow = 1;
    return real_of(r, "attention_factor", usual, &to->multiplier);
}

static bool read_divisors(const reading *r, nn_rotary_config *to, const char *key, int which, int64_t count)
{
    nn_fact list = nn_fact_find(r->said, key);
    if (nn_fact_count(list) != count || count > NN_ROTARY_MOST)
        return nn_fail(&r->to, "%s must have %lld numbers", key, (long long)count);
    for (int64_t i = 0; i < count; i++) {
        double x;
        if (!nn_fact_real(nn_fact_item(list, i), &x)) return nn_fail(&r->to, "%s must have numbers", key);
        to->divisors[which][i] = (float)x;
    }
    return true;
}

static bool read_long(const reading *r, nn_rotary_config *to, int64_t width)
{
    if (!read_trained(r, to, false) || !real_of(r, "factor", longer_by(r, to), &to->factor)) return false;
    double usual = to->factor <= 1 ? 1 : sqrt(1 + log(to->factor) / log((double)to->trained));
    to->factor = 1; /* which the divisors contain */
    return real_of(r, "attention_factor", usual, &to->multiplier) &&
           read_divisors(r, to, "short_factor", 0, width / 2) && read_divisors(r, to, "long_factor", 1, width / 2);
}

static bool read_llama3(const reading *r, nn_rotary_config *to)
{
    return read_trained(r, to, false) && real_of(r, "factor", 0, &to->factor) &&
           real_of(r, "low_freq_factor", 0, &to->slow) && real_of(r, "high_freq_factor", 0, &to->fast);
}

static bool read_scaling(const reading *r, nn_attention_config *a)
{
    static const struct {
        const char *word;
        nn_rotary_scaling scaling;
    } words[] = {{"default", NN_ROTARY_AS_IS}, {"linear", NN_ROTARY_LINEAR}, {"dynamic", NN_ROTARY_DYNAMIC},
                 {"yarn", NN_ROTARY_YARN},     {"llama3", NN_ROTARY_LLAMA3}, {"longrope", NN_ROTARY_LONG},
                 {"su", NN_ROTARY_LONG},       {"mrope", NN_ROTARY_AS_IS}}; /* text has one position, pictures three */
    char word[64] = "default";
    nn_fact f = nn_fact_find(r->said, "rope_type");
    if (!f.text) f = nn_fact_find(r->said, "type");
    if (f.text && !nn_fact_is_null(f)) nn_fact_string(f, word, sizeof word);
    for (size_t n = 0; n < sizeof words / sizeof *words; n++) {
        if (strcmp(word, words[n].word) != 0) continue;
        a->rotary.scaling = words[n].scaling;
        a->rotary.restart = r->f->rotary.restart;
        switch (a->rotary.scaling) {
        case NN_ROTARY_AS_IS:
            return true;
        case NN_ROTARY_LINEAR:
            return real_of(r, "factor", 0, &a->rotary.factor);
        case NN_ROTARY_DYNAMIC:
            return real_of(r, "factor", 0, &a->rotary.factor) && read_trained(r, &a->rotary, true);
        case NN_ROTARY_YARN:
            return read_yarn(r, &a->rotary);
        case NN_ROTARY_LLAMA3:
            return read_llama3(r, &a->rotary);
        case NN_ROTARY_LONG:
            return read_long(r, &a->rotary, a->rotary_width);
        }
    }
    return nn_fail(&r->to,
                   "the rotary embedding's rope_type %s is not supported; default, linear, dynamic, yarn, longrope and "
                   "llama3 are",
                   nn_json_brief(word).text);
}

/* The object that says it: rope_scaling, if it is not null, else rope_parameters, or of that the part for this type of
 * layer. In the older spelling nothing is said of sliding attention but its base. */
static nn_fact find_object(const nn_family *f, const nn_config *c, bool local)
{
    nn_fact old = nn_config_find(c, "rope_scaling"), now = nn_config_find(c, "rope_parameters");
    bool two = f->rotary.local > 0;
    nn_fact own = nn_fact_find(now, local ? "sliding_attention" : "full_attention");
    if (old.text && !nn_fact_is_null(old)) return two && local ? nn_fact_of("{}", 2) : old;
    if (two && own.text) return own;
    if (now.text && !nn_fact_is_null(now)) return now;
    return f->rotary.unsaid ? nn_fact_of(f->rotary.unsaid, strlen(f->rotary.unsaid)) : nn_fact_of("{}", 2);
}

static bool read_one(const nn_blocks_config *b, nn_attention_config *a, const nn_family *f, const nn_config *c,
                     bool local, char *error, size_t error_size)
{
    reading r = {f, c, {c->name, error, error_size}, 0, find_object(f, c, local), local};
    nn_fact key, value;
    for (size_t at = 0; nn_fact_next(r.said, &at, &key, &value);)
        if (*value.text == '{')
            return nn_fail(&r.to,
                           "the rotary embedding differs between layers (%.*s), which is not supported in this family",
                           (int)(key.size < 40 ? key.size : 40), key.text);
    r.width = b->heads > 0 || b->head_width ? nn_blocks_head_width(b) : 0; /* 0: the tensors of a layer show it */
    return read_base(&r, a) && read_scaling(&r, a);
}

/* Layers without a rotary embedding are of a kind of their own. */
static bool skip_layers(nn_blocks_config *b, const nn_family *f, const nn_config *c, char *error, size_t error_size)
{
    nn_failure to = {c->name, error, error_size};
    nn_fact list = nn_config_find(c, f->rotary.skips);
    bool said = list.text && !nn_fact_is_null(list);
    int64_t every = 4;
    nn_fact_int(nn_config_find(c, f->rotary.skip_every), &every);
    if (said ? nn_fact_count(list) != b->depth : every < 1)
        return nn_fail(&to, "%s must have a number for each of the %lld layers", f->rotary.skips, (long long)b->depth);
    for (int64_t l = 0; l < b->depth; l++) {
        bool turns = said ? !nn_fact_is(nn_fact_item(list, l), "0") : (l + 1) % every != 0;
        if (!turns) b->block[l].kind |= 2;
    }
    return true;
}

bool nn_family_rotary(nn_blocks_config *b, const nn_family *f, const nn_config *c, char *error, size_t error_size)
{
    nn_attention_config *a = b->attention;
    bool none = false;
    if (f->rotary.unless) nn_fact_truth(nn_config_find(c, f->rotary.unless), &none);
    if (f->rotary.theta > 0 && !none) {
        if (!read_one(b, &a[0], f, c, false, error, error_size)) return false;
        a[1] = a[0];
        a[1].rotary = (nn_rotary_config){.multiplier = 1, .factor = 1};
        if (!read_one(b, &a[1], f, c, f->rotary.local > 0, error, error_size)) return false;
    } else a[1] = a[0];
    a[2] = a[0], a[3] = a[1];
    a[2].rotary_base = a[3].rotary_base = 0;
    return !f->rotary.skips || skip_layers(b, f, c, error, error_size);
}
