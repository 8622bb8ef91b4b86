/* mha heads --help. */
#include "cli/heads/help.h"
#include "cli/common/model.h"
#include "cli/common/options.h"
#include "cli/common/tokenizer.h"

#include <stdio.h>

static void help_examples(void)
{
    puts("Examples:\n"
         "  mha heads vit.safetensors --data ~/.cache/mha/mnist\n"
         "                        a table of all heads: what each attends to, its\n"
         "                        importance, and the most similar head of its block\n"
         "  mha heads vit.safetensors --sort importance --sample 500\n"
         "                        the most important heads first, from fewer images\n"
         "  mha heads vit.safetensors --roles\n"
         "                        also what each head attends to in a digit: ink, strokes,\n"
         "                        ends, corners, loops; tested against shuffled images\n"
         "  mha heads vit.safetensors --format svg -o heads.svg\n"
         "                        the mean attention maps of all heads as an image\n"
         "  mha heads vit.safetensors --ablate\n"
         "                        what the model loses with each head switched off, and\n"
         "                        with each head alone in its block\n"
         "  mha heads vit.safetensors --json\n"
         "                        the same numbers as JSON\n"
         "  mha heads stories15M.bin --text story.txt --sort induction\n"
         "                        the heads of a text model: previous token, first token,\n"
         "                        induction, ...\n"
         "  mha heads marian --text english.txt --target german.txt\n"
         "                        alignment of source and target by cross-attention\n"
         "  mha heads whisper --audio talk.wav\n"
         "                        where the decoder of a Whisper looks in the sound\n"
         "  mha heads bert --relations en.conllu\n"
         "                        the head that finds subjects, objects, ... most often\n");
}

static void help_options(void)
{
    puts("Usage: mha heads FILE [OPTIONS]\n"
         "       mha heads MODEL --text TEXT [OPTIONS]\n"
         "       mha heads MODEL --audio FILE.wav [OPTIONS]\n"
         "       mha heads MODEL --relations FILE [OPTIONS]\n"
         "Options of all models:\n"
         "  --sort KEY            sort the table by block (default), entropy or distance;\n"
         "                        for images also by importance (or worth), with --text\n"
         "                        by induction, previous or first\n"
         "  --sample N            how many test images or windows, evenly spaced (default:\n"
         "                        all images; 64 windows, 16 with --ablate), or how many\n"
         "                        lines or sentences, from the first on (64; 1000)\n"
         "  --ablate              what the model loses with heads switched off\n"
         "  --format FORMAT       format of the maps: terminal (default), png or svg\n"
         "  -o FILE               output file for --format png or svg\n"
         "  --json                print one JSON object; heads in block order\n" CLI_HELP_THREADS CLI_HELP_COLOR);
    puts("Options of models for images:\n"
         "  --data DIR            folder with MNIST's four files, or 'synthetic' for 1000\n"
         "                        synthetic test digits. Default: the folder of\n"
         "                        './dev data mnist', or else 'synthetic'\n"
         "  --importance-images N number of the images for importance (default: 400)\n"
         "  --roles               also measure the roles of the heads, with scores and\n"
         "                        significance, over at most 400 of the images\n" MODEL_HELP_HEADS "\n" MODEL_HELP_FILE
         "\n"
         "FILE must have ten classes. Maps, distance and similarity use at most 400\n"
         "images. --ablate prints accuracy and loss, beside importance and its rank\n"
         "correlation with them.\n");
}

static void help_text_options(void)
{
    puts("Options of text models:\n"
         "  --text TEXT           a text file ('-': standard input). It is cut into\n"
         "                        windows; the rest that fills none is not used. For a\n"
         "                        model with encoder and decoder, each line is a source\n"
         "  --audio FILE.wav      a sound of 16000 samples per second, for a model that\n"
         "                        reads audio: the heads of its decoder, and of\n"
         "                        cross-attention from the transcript to the frames\n"
         "  --window N            tokens of a window, with those that the tokenizer adds\n"
         "                        (default: 128)\n"
         "  --target TARGET       one target per line, of a model with two stacks\n"
         "                        (default: what the model generates, greedily)\n"
         "  --seed N              of the random tokens that measure induction (default: 1)\n"
         "  --relations FILE      sentences in CoNLL-U. Read are ID, FORM, HEAD, DEPREL,\n"
         "                        and in MISC SpaceAfter=No, Coref=ID and Entity=(ID:\n"
         "                        links to the nearest earlier word with that ID\n" TOKENIZER_HELP "\n"
         "The number of tokens is that of the text, without those that the tokenizer adds\n"
         "at its beginning and end, which 'mha eval' counts. --ablate prints the loss\n"
         "without each head, of a causal model.\n");
}

static void help_json(void)
{
    puts("JSON keys: model, data, synthetic, survey: {images, close_images,\n"
         "importance_images, heads: [{block, head, entropy, effective, largest, distance,\n"
         "self, previous, next, first, place, position, content, importance, words, twin\n"
         "(or null), divergence, cosine}], pairs: divergences [block][head][head]};\n"
         "with --ablate also ablation: {images, cases, seconds, rank_correlation: {loss,\n"
         "accuracy}, all_heads: SCORE, heads: [{block, head, importance, off: SCORE,\n"
         "alone: SCORE}], blocks: [{block, off: SCORE, sum_of_drops, pair (or null):\n"
         "{heads, off: SCORE, sum_of_drops}}]}, where SCORE is {accuracy, loss, recall:\n"
         "[class]}, a drop is a difference of accuracies, and sums are those of drops of\n"
         "single heads; the survey then uses 400 images, or more for importance.\n"
         "Blocks, heads and twins count from 0; a twin is the most similar head of the\n"
         "same block. With --roles also roles: {images, shuffles, level, heads: [{block,\n"
         "head, words, by_position, patches, class_token (a role or null: the best named\n"
         "one), scores: [{role, queries (patches or class_token), score, lift, variation,\n"
         "z, p, p_alone, named}]}]}; include/mha_model.h, section 6, says what they mean.\n"
         "Numbers are means over images and query tokens. place, position and content, in\n"
         "nats, add up to log(tokens) - entropy: the part due to keys that all queries\n"
         "attend to, the part that depends on the query's position, and the part that\n"
         "depends on the image.\n");
}

static void help_text(void)
{
    puts("With --text, JSON keys: model, text (or audio), survey: {tokens, windows, window\n"
         "(null: of unlike length), repeats, repeat_length, heads: [{attention (encoder,\n"
         "decoder or cross), block, head, entropy, uniform, effective, largest, distance,\n"
         "self, previous, next, first, last, duplicate, induction, chance, position,\n"
         "content, monotone, words}]}, with --ablate also ablation: {windows, tokens,\n"
         "seconds, all_heads: SCORE, heads: [SCORE with block and head]}, where SCORE is\n"
         "{loss, perplexity, accuracy}; null where a number does not apply. The words\n"
         "follow from the numbers, by rules that include/mha_text.h, section 3, lists.\n"
         "\n"
         "With --relations, JSON keys: model, file, sentences, words, links, relations:\n"
         "[{relation, direction (forth: from the dependent to its head, from the later\n"
         "mention to the earlier; or back), links, block, head, hits (of the best head),\n"
         "offset, offset_hits (of the best fixed offset, in words), heads: [hits]}]. A hit\n"
         "is a link whose target gets the largest weight among all other words, those\n"
         "before it for a causal model; links to words that it cannot see do not count.");
}

void heads_help(void)
{
    help_examples();
    help_options();
    help_text_options();
    help_json();
    help_text();
}
