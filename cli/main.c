/* The mha command: runs the subcommand and checks that its output was written. */
#include "cli/common/cli.h"
#include "cli/terminal/interrupt.h"
#include "cli/terminal/progress.h"

#include <errno.h>
#include <mha.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name, *summary;
    int (*run)(int argc, char **argv);
} commands[] = {
    {"demo", "train a small Vision Transformer on digits and show its heads", cmd_demo},
    {"train", "train a Vision Transformer on MNIST or on synthetic digits", cmd_train},
    {"eval", "measure accuracy and speed of a model, or its loss on a text", cmd_eval},
    {"classify", "classify images, and show attention maps", cmd_classify},
    {"heads", "describe every head of a model: what it attends to, importance", cmd_heads},
    {"prune", "remove the least important heads of a model", cmd_prune},
    {"view", "write an interactive page of attention heads or weights", cmd_view},
    {"inspect", "show what is in a model file: parts, tensors, a diagram", cmd_inspect},
    {"generate", "continue texts, or translate them, with a language model", cmd_generate},
    {"embed", "turn texts into vectors with a text model, and compare them", cmd_embed},
    {"fill", "the most likely words for the [MASK] of a text", cmd_fill},
    {"tokenize", "split a text into tokens, or ids back to text; train BPE", cmd_tokenize},
    {"transcribe", "write down what is said in WAV files", cmd_transcribe},
    {"explain", "compute attention step by step on a sentence", cmd_explain},
    {"info", "show version, processor, GPUs and instruction sets", cmd_info},
    {"bench", "verify and time attention on common shapes", cmd_bench},
    {"layer", "run an attention layer from a file on inputs from a file", cmd_layer},
    {"conformance", "run conformance cases: ONNX operators, tokenizers", cmd_conformance},
};
enum { COMMANDS = sizeof commands / sizeof *commands };

static void help(FILE *out)
{
    fputs("Examples:\n"
          "  mha demo                     train on MNIST for some minutes, show the heads\n"
          "  mha train vit -o vit.safetensors\n"
          "                               train a model; a checkpoint after every epoch\n"
          "  mha eval vit.safetensors     accuracy, confusion matrix, speed\n"
          "  mha classify vit.safetensors seven.png --heads\n"
          "                               class probabilities and attention maps\n"
          "  mha heads vit.safetensors    what each head attends to, and its importance\n"
          "  mha prune vit.safetensors --max-drop 0.3 -o small.safetensors\n"
          "                               a smaller model with fewer heads\n"
          "  mha view vit.safetensors -o page.html\n"
          "                               an interactive page of the attention heads\n"
          "  mha inspect vit.safetensors  parts and tensors of a model; --diagram draws it\n"
          "  mha generate ~/.cache/mha/stories15m -p \"Once upon a time\"\n"
          "                               continue a text\n"
          "  mha embed minilm \"A cat\" \"A kitten\"\n"
          "                               sentence embeddings and their cosines\n"
          "  mha fill bert \"Paris is the capital of [MASK].\"\n"
          "                               the most likely words for a mask\n"
          "  mha tokenize tokenizer.json \"Hello world\"\n"
          "                               ids and pieces of a text\n"
          "  mha transcribe whisper talk.wav\n"
          "                               the words of a sound file\n"
          "  mha explain --text \"the cat sat on the mat\"\n"
          "                               attention on a sentence, with every number\n"
          "  mha info --json              processor, GPUs and instruction sets, as JSON\n"
          "  mha bench --shape bert_base  time attention here, beside OpenBLAS\n"
          "  mha layer L.safetensors X.safetensors -o Y.safetensors\n"
          "                               run a layer that PyTorch saved on inputs\n"
          "  mha conformance vectors/     run the test cases in a folder\n"
          "\n"
          "Usage: mha COMMAND [OPTIONS]\n",
          out);
    for (int i = 0; i < COMMANDS; i++) fprintf(out, "  %-13s%s\n", commands[i].name, commands[i].summary);
    fputs("  --help       print this text; 'mha COMMAND --help' describes a command\n"
          "  --version    print the version of the library\n"
          "\n"
          "A long option may be shortened to any beginning that no other option has.\n"
          "Arguments after '--' are not options.\n"
          "Set MHA_ISA=NAME to force one of the instruction sets listed by 'mha info'.\n"
          "Exit status: 0 success, 1 a check failed, 2 wrong usage or bad input,\n"
          "130 interrupted.\n",
          out);
}

static int unknown(const char *word)
{
    const char *words[COMMANDS + 2] = {"--version"};
    for (int i = 0; i < COMMANDS; i++) words[1 + i] = commands[i].name;
    const char *near = cli_closest(word, words), *what = word[0] == '-' ? "option" : "command";
    if (near) cli_error("unknown %s '%s'; did you mean '%s'?", what, word, near);
    else cli_error("unknown %s '%s'; 'mha --help' lists them", what, word);
    return CLI_USAGE;
}

/* Whether the word is an option, or its beginning. */
static bool begins(const char *word, const char *option)
{
    size_t length = strlen(word);
    return length > 2 && strncmp(word, option, length) == 0;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        help(stderr);
        return CLI_USAGE;
    }
    if (argc > 2 && strcmp(argv[1], "help") == 0) {
        char *of[] = {argv[2], "--help", NULL};
        for (int i = 0; i < COMMANDS; i++)
            if (strcmp(argv[2], commands[i].name) == 0) return commands[i].run(2, of);
        return unknown(argv[2]);
    }
    if (cli_wants_help(argv[1]) || begins(argv[1], "--help") || strcmp(argv[1], "help") == 0) {
        help(stdout);
        return CLI_OK;
    }
    if (begins(argv[1], "--version")) {
        printf("mha %s\n", mha_version());
        return CLI_OK;
    }
    for (int i = 0; i < COMMANDS; i++)
        if (strcmp(argv[1], commands[i].name) == 0) return commands[i].run(argc - 1, argv + 1);
    return unknown(argv[1]);
}

/* A full disk or a closed pipe is reported at the latest when the stream is closed. */
int main(int argc, char **argv)
{
    cli_called(argv[0]);
    interrupt_install();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error like a full disk, not a fatal signal */
    int status = dispatch(argc, argv);
    progress_end();
    bool lost = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) != 0 || lost) {
        fprintf(stderr, "mha: cannot write to standard output: %s\n", errno ? strerror(errno) : "a write failed");
        return status == CLI_OK ? CLI_FAILED : status;
    }
    return status;
}
