/* The mha command: runs the subcommand and checks that its output was written. */
#include "cli/common/options.h"
#include "cli/terminal/interrupt.h"

#include <mha.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

const cli_command *const cli_commands[] = {
    &demo_command,       &train_command,   &eval_command,     &classify_command, &heads_command, &prune_command,
    &view_command,       &inspect_command, &generate_command, &embed_command,    &fill_command,  &tokenize_command,
    &transcribe_command, &explain_command, &info_command,     &bench_command,    &layer_command, NULL};

enum { COMMANDS = sizeof cli_commands / sizeof *cli_commands };

static void print_help(FILE *out)
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
          "\n"
          "Usage: mha COMMAND [OPTIONS]\n",
          out);
    for (const cli_command *const *c = cli_commands; *c; c++) fprintf(out, "  %-13s%s\n", (*c)->name, (*c)->summary);
    fputs("  --help       print this text; 'mha COMMAND --help' describes a command\n"
          "  --version    print the version of the library\n"
          "  --generate WHAT\n"
          "               print a manual page (man) or completions for a shell\n"
          "               (complete-bash, complete-zsh); 'cmake --install' installs them\n"
          "\n"
          "A long option may be shortened to any beginning that no other option has.\n"
          "Arguments after '--' are not options.\n"
          "Set MHA_ISA=NAME to force one of the instruction sets listed by 'mha info'.\n"
          "Exit status: 0 success, 1 a check failed, 2 wrong usage or bad input,\n"
          "130 interrupted.\n",
          out);
}

static int refuse_unknown(const char *word)
{
    const char *words[COMMANDS + 2] = {"--version"};
    for (int i = 0; i < COMMANDS - 1; i++) words[1 + i] = cli_commands[i]->name;
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

/* The command of that name, or NULL. */
static const cli_command *find_command(const char *name)
{
    for (const cli_command *const *c = cli_commands; *c; c++)
        if (strcmp(name, (*c)->name) == 0) return *c;
    return NULL;
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2) {
        print_help(stderr);
        return CLI_USAGE;
    }
    const char *word = argv[1];
    const cli_command *command = find_command(word);
    if (command) return cli_run(command, argc - 1, argv + 1);
    if (argc > 2 && strcmp(word, "help") == 0) {
        char *of[] = {argv[2], "--help", NULL};
        command = find_command(argv[2]);
        return command ? cli_run(command, 2, of) : refuse_unknown(argv[2]);
    }
    if (cli_wants_help(word) || begins(word, "--help") || strcmp(word, "help") == 0) {
        print_help(stdout);
        return CLI_OK;
    }
    if (strcmp(word, "--generate") == 0) return cli_generate(argv[2]);
    if (!begins(word, "--version")) return refuse_unknown(word);
    printf("mha %s\n", mha_version());
    return CLI_OK;
}

int main(int argc, char **argv)
{
    cli_called(argv[0]);
    interrupt_install();
    signal(SIGXFSZ, SIG_IGN); /* a file size limit is an error like a full disk, not a fatal signal */
    return cli_finish(dispatch(argc, argv));
}
