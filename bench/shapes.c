/* The shapes that people run: vision, encoders, decoders, long contexts, and the steps of a decoder with its cache. */
#include "bench.h"

const bench_shape bench_shapes[] = {
    {"vit_mnist", "a batch of MNIST digits in 4x4 patches", 256, 4, 4, 50, 50, 16, false, false},
    {"vit_b16", "one image through ViT-B/16", 1, 12, 12, 197, 197, 64, false, false},
    {"bert_base", "eight texts through BERT-Base", 8, 12, 12, 512, 512, 64, false, false},
    {"gpt2_small", "one text through GPT-2 Small", 1, 12, 12, 1024, 1024, 64, true, false},
    {"gpt3_2k", "one text through GPT-3", 1, 96, 96, 2048, 2048, 128, true, false},
    {"long_16k", "one long text", 1, 8, 8, 16384, 16384, 64, true, false},
    {"decode_gqa_4k", "one token, grouped heads, 4096 keys", 1, 32, 8, 1, 4096, 128, false, false},
    {"decode_b32_1k", "one token for 32 texts of 1024 keys", 32, 12, 12, 1, 1024, 64, false, false},
    {"vit_b16_b32", "32 images through ViT-B/16", 32, 12, 12, 197, 197, 64, false, true},
    {"gpt2_small_b8", "eight texts through GPT-2 Small", 8, 12, 12, 1024, 1024, 64, true, true},
    {"llama_4k", "two texts through Llama 3 8B, grouped heads", 2, 32, 8, 4096, 4096, 128, true, true},
    {"full_8k_64", "16 heads of width 64, two texts of 8192 tokens", 2, 16, 16, 8192, 8192, 64, false, true},
    {"causal_8k_64", "the same, causal", 2, 16, 16, 8192, 8192, 64, true, true},
    {"full_8k_128", "16 heads of width 128, two texts of 8192 tokens", 2, 16, 16, 8192, 8192, 128, false, true},
    {"causal_8k_128", "the same, causal", 2, 16, 16, 8192, 8192, 128, true, true},
    {"full_16k_64", "16 heads of width 64, one text of 16384 tokens", 1, 16, 16, 16384, 16384, 64, false, true},
    {"causal_16k_64", "the same, causal", 1, 16, 16, 16384, 16384, 64, true, true},
    {"full_16k_128", "16 heads of width 128, one text of 16384 tokens", 1, 16, 16, 16384, 16384, 128, false, true},
    {"causal_16k_128", "the same, causal", 1, 16, 16, 16384, 16384, 128, true, true},
    {"decode_gqa_8k", "one token, grouped heads, 8192 keys", 1, 32, 8, 1, 8192, 128, false, true},
    {"decode_b64_8k", "one token for 64 texts of 8192 keys", 64, 32, 8, 1, 8192, 128, false, true},
    {NULL, NULL, 0, 0, 0, 0, 0, 0, false, false},
};

bool bench_is_decode(const bench_shape *shape) { return shape->Tq <= 8 && shape->Tk > 64 * shape->Tq; }

const bench_product bench_products[] = {
    {"qkv_vit_b16", "queries, keys and values of one image, ViT-B/16", 197, 768, 2304},
    {"out_bert_base", "output projection of eight texts, BERT-Base", 4096, 768, 768},
    {"qkv_vit_mnist", "queries, keys and values of a batch of digits", 12800, 64, 192},
    {"mlp_vit_mnist", "the first layer of their MLP", 12800, 64, 128},
    {"small_512", "a projection of twenty tokens", 20, 512, 512},
    {NULL, NULL, 0, 0, 0},
};

const bench_layer bench_layers[] = {
    {"mha_vit_b16", "one image through ViT-B/16, 768 wide, 12 heads", 1, 197, 768, 12, false, 0, false, false},
    {"mha_bert_base", "eight texts through BERT-Base, 768 wide, 12 heads", 8, 512, 768, 12, false, 0, false, false},
    {"mha_bert_large", "one text through BERT-Large, 1024 wide, 16 heads", 1, 512, 1024, 16, false, 0, false, false},
    {"mha_gpt2_small", "one text through GPT-2 Small, 768 wide, 12 heads", 1, 1024, 768, 12, false, 0, true, false},
    {"mha_gpt2_large", "one text through GPT-2 Large, 1280 wide, 20 heads", 1, 1024, 1280, 20, false, 0, true, false},
    {"mha_gpt3_175b", "64 tokens of GPT-3 175B, 12288 wide, 96 heads; by name only", 1, 64, 12288, 96, false, 0, true,
     true},
    {"mha_vit_mnist", "a batch of digits, 64 wide, 4 heads", 256, 50, 64, 4, false, 0, false, false},
    {"mha_small", "two sequences of ten tokens, 512 wide, 8 heads", 2, 10, 512, 8, false, 0, false, false},
    {"mha_bert_maps", "as mha_bert_base, with the weights of every head", 8, 512, 768, 12, true, 0, false, false},
    {"mha_vit_maps", "as mha_vit_b16, with the weights of every head", 1, 197, 768, 12, true, 0, false, false},
    {"mha_step", "one token with 1024 in the cache, 768 wide, 12 heads", 1, 1, 768, 12, false, 1024, false, false},
    {NULL, NULL, 0, 0, 0, 0, false, 0, false, false},
};
