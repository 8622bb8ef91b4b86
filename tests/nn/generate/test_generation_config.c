/* generation_config.json: every key, what is refused, what is named as not supported. */
#include "generate/config.h"
#include "support/harness.h"

static char line[240];

static bool read(nn_generation_config *c, const char *text)
{
    nn_failure to = {"generation_config.json", line, sizeof line};
    line[0] = 0;
    return nn_generation_config_read(c, text, strlen(text), &to);
}

TEST(defaults_are_those_of_transformers)
{
    nn_generation_config c;
    nn_generation_config_defaults(&c);
    expect(read(&c, "{}"), "%s", line);
    expect(!c.sample && c.temperature == 1 && c.top_k == 50 && c.top_p == 1 && c.min_p == 0, "sampling");
    expect(c.beams == 1 && c.length_penalty == 1 && c.early_stopping == NN_EARLY_NO, "beams");
    expect(c.decoder_start == -1 && c.forced_bos == -1 && c.pad == -1 && c.bos == -1 && !c.end.count, "tokens");
    nn_generation_config_free(&c);
}

TEST(all_keys_are_read)
{
    nn_generation_config c;
    nn_generation_config_defaults(&c);
    expect(read(&c, "{\"do_sample\": true, \"temperature\": 0.6, \"top_k\": 20, \"top_p\": 0.95, \"min_p\": 0.05,"
                    "\"repetition_penalty\": 1.05, \"no_repeat_ngram_size\": 3, \"num_beams\": 4,"
                    "\"length_penalty\": -0.5, \"early_stopping\": \"never\", \"max_length\": 142,"
                    "\"max_new_tokens\": 7, \"min_length\": 56, \"min_new_tokens\": 2, \"renormalize_logits\": true,"
                    "\"encoder_no_repeat_ngram_size\": 2, \"encoder_repetition_penalty\": 1.5,"
                    "\"bos_token_id\": 1, \"pad_token_id\": 0, \"decoder_start_token_id\": 2,"
                    "\"forced_bos_token_id\": 5, \"eos_token_id\": [128001, 128009], \"forced_eos_token_id\": 2,"
                    "\"suppress_tokens\": [1, 2, 7], \"begin_suppress_tokens\": [220, 50256],"
                    "\"bad_words_ids\": [[58100], [3, 4]], \"transformers_version\": \"5.17.0\", \"use_cache\": true}"),
           "%s", line);
    expect(c.sample && c.temperature == 0.6 && c.top_k == 20 && c.top_p == 0.95 && c.min_p == 0.05, "sampling");
    expect(c.repetition_penalty == 1.05 && c.no_repeat_ngram == 3 && c.encoder_no_repeat_ngram == 2 &&
               c.encoder_repetition_penalty == 1.5,
           "repetition");
    expect(c.beams == 4 && c.length_penalty == -0.5 && c.early_stopping == NN_EARLY_NEVER && c.renormalize, "beams");
    expect(c.max_length == 142 && c.max_new_tokens == 7 && c.min_length == 56 && c.min_new_tokens == 2, "lengths");
    expect(c.bos == 1 && c.pad == 0 && c.decoder_start == 2 && c.forced_bos == 5, "tokens");
    expect(c.end.count == 2 && c.end.ids[1] == 128009 && c.forced_end.count == 1 && c.forced_end.ids[0] == 2, "ends");
    expect(c.suppressed.count == 3 && c.suppressed.ids[2] == 7 && c.suppressed_first.count == 2, "suppressed");
    expect(c.banned_count == 2 && c.banned_ends[0] == 1 && c.banned_ends[1] == 3 && c.banned.ids[2] == 4, "banned");
    expect(!c.unsupported[0], "%s is supported", c.unsupported);
    expect(read(&c, "{\"eos_token_id\": 9, \"bad_words_ids\": [[1]], \"top_k\": null}"), "%s", line);
    expect(c.end.count == 1 && c.end.ids[0] == 9 && c.banned_count == 1 && c.banned_ends[0] == 1, "a second file");
    expect(c.top_k == 20, "null changes nothing");
    nn_generation_config_free(&c);
}

TEST(keys_that_are_not_supported_are_named)
{
    static const struct {
        const char *text, *name;
    } cases[] = {
        {"{\"typical_p\": 0.9}", "typical_p"},
        {"{\"typical_p\": 1.0, \"num_beam_groups\": 1, \"penalty_alpha\": null}", ""},
        {"{\"sequence_bias\": [[[5], -10.0]]}", "sequence_bias"},
        {"{\"force_words_ids\": [ ], \"constraints\": {}}", ""},
        {"{\"stop_strings\": [\"x\"]}", "stop_strings"},
        {"{\"guidance_scale\": 2}", "guidance_scale"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        nn_generation_config c;
        nn_generation_config_defaults(&c);
        expect(read(&c, cases[n].text), "%s", line);
        expect(!strcmp(c.unsupported, cases[n].name), "%s names \"%s\"", cases[n].text, c.unsupported);
        nn_generation_config_free(&c);
    }
}

TEST(wrong_values_are_refused)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"{\"top_p\": 1.5}", "top_p is 1.5, must be from 0 to 1"},
        {"{\"top_k\": 2.5}", "top_k is not a whole number"},
        {"{\"temperature\": \"hot\"}", "temperature is not a number"},
        {"{\"do_sample\": 1}", "do_sample is not true or false"},
        {"{\"eos_token_id\": [1, \"2\"]}", "eos_token_id is not a number"},
        {"{\"eos_token_id\": -5}", "eos_token_id is -5"},
        {"{\"eos_token_id\": 1e300}", "eos_token_id is 1e+300"},
        {"{\"bad_words_ids\": [1]}", "bad_words_ids is not a list of lists"},
        {"{\"early_stopping\": \"soon\"}", "early_stopping is not true, false or \"never\""},
        {"{\"num_beams\": 0}", "num_beams is 0"},
        {"{\"top_k\": 5", "byte"},
        {"[]", "byte"},
        {"{\"a\": 1} x", "byte"},
        {"", "byte"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        nn_generation_config c;
        nn_generation_config_defaults(&c);
        expect(!read(&c, cases[n].text), "%s was read", cases[n].text);
        expect(strstr(line, cases[n].says) && !strncmp(line, "generation_config.json: ", 24), "%s: \"%s\"",
               cases[n].text, line);
        nn_generation_config_free(&c);
    }
}
