/* Where a model is found: a folder of huggingface_hub's cache, the name of a model in that cache; and what is said of files and
 * folders that hold something else. */
#include "cli/generate/letters.h"

/* A folder of the test's own folder, made with those that it lies in. */
static const char *make_folders(const char *path)
{
    static char whole[300], line[400];
    snprintf(whole, sizeof whole, "%s/%s", command_folder, path);
    snprintf(line, sizeof line, "mkdir -p '%s'", whole);
    expect(system(line) == 0, "%s", line);
    return whole;
}

static void write_bytes(const char *folder, const char *name, const char *bytes, size_t size)
{
    char path[400];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "wb");
    expect(file && fwrite(bytes, 1, size, file) == size, "cannot write %s", path);
    if (file) fclose(file);
}

/* A model as the cache has it: models--org--letters with one snapshot, which refs/main names. Returns the cache. */
static const char *cache(void)
{
    static char hub[300];
    char line[1200], model[300];
    if (*hub) return hub;
    snprintf(model, sizeof model, "%s", letters_make("letters", NULL));
    snprintf(hub, sizeof hub, "%s", make_folders("home/.cache/huggingface/hub"));
    make_folders("home/.cache/huggingface/hub/models--org--letters/refs");
    make_folders("home/.cache/huggingface/hub/models--org--letters/snapshots/0badc0de");
    snprintf(line, sizeof line, "%s/models--org--letters", hub);
    write_bytes(line, "refs/main", "0badc0de\n", 9);
    snprintf(line, sizeof line, "cp %s/* %s/models--org--letters/snapshots/0badc0de/", model, hub);
    expect(system(line) == 0, "%s", line);
    return hub;
}

/* With these variables alone, `mha inspect NAME` finds the model with its tokenizer, or says so. */
static void inspects(const char *variables, const char *name, const char *says)
{
    char line[900], environment[900];
    snprintf(environment, sizeof environment,
             "env -u HF_HUB_CACHE -u HUGGINGFACE_HUB_CACHE -u HF_HOME -u XDG_CACHE_HOME %s", variables);
    snprintf(line, sizeof line, "inspect %s", name);
    const said *it = command(environment, line);
    if (!says) {
        expect(it->status == 0 && !*it->err && strstr(it->out, "  tokenizer   BPE of 30 tokens"), "%s: %s%s", variables,
               it->out, it->err);
        return;
    }
    expect(it->status == 2 && one_line(it->err) && !*it->out && strstr(it->err, says),
           "%s %s: status %d, '%s', not '%s'", variables, name, it->status, it->err, says);
}

TEST(names_are_looked_up_in_the_cache)
{
    static const char *const found[] = {"HF_HUB_CACHE=%s/home/.cache/huggingface/hub HF_HOME=/nowhere",
                                        "HUGGINGFACE_HUB_CACHE=%s/home/.cache/huggingface/hub",
                                        "HF_HOME=%s/home/.cache/huggingface XDG_CACHE_HOME=/nowhere",
                                        "XDG_CACHE_HOME=%s/home/.cache HOME=/nowhere",
                                        "HOME=%s/home",
                                        "HF_HOME='~/.cache/huggingface' HOME=%s/home",
                                        "HF_HUB_CACHE='${PLACE}/hub' PLACE=%s/home/.cache/huggingface",
                                        "HF_HUB_CACHE='$PLACE/hub' PLACE=%s/home/.cache/huggingface"};
    char variables[600], says[500];
    cache();
    for (size_t n = 0; n < sizeof found / sizeof *found; n++) {
        snprintf(variables, sizeof variables, found[n], command_folder);
        inspects(variables, "org/letters", NULL);
    }
    snprintf(variables, sizeof variables, "HF_HOME=%s/empty", command_folder);
    snprintf(
        says, sizeof says,
        "org/letters: is no file or folder, and no model in the cache of huggingface_hub, %s/empty/hub; 'hf download "
        "org/letters' downloads it\n",
        command_folder);
    inspects(variables, "org/letters", says);
    inspects(variables, "letters", "'hf download letters' downloads it");
    inspects(variables, "letters.safetensors", "letters.safetensors: No such file or directory");
    inspects(variables, "org/../letters", "org/../letters: No such file or directory");
    inspects(variables, "org/letters/x", "org/letters/x: No such file or directory");
}

TEST(every_command_finds_the_tokenizer_of_a_name)
{
    char variables[400];
    cache();
    snprintf(variables, sizeof variables, "HF_HUB_CACHE=%s", cache());
    const said *it = command(variables, "generate org/letters -p abc --tokens 3");
    expect(it->status == 0 && !strncmp(it->out, "abc", 3), "generate: %s%s", it->out, it->err);
    it = command(variables, "tokenize org/letters 'a b'");
    expect(it->status == 0, "tokenize: %s", it->err);
    it = command(variables, "embed org/letters abc --pool last --json");
    expect(it->status == 0 && strstr(it->out, "\"pool\": \"last\""), "embed: %s", it->err);
}

TEST(folders_of_the_cache_stand_for_a_snapshot)
{
    char folder[400], refs[500];
    snprintf(folder, sizeof folder, "%s/models--org--letters", cache());
    snprintf(refs, sizeof refs, "%s/refs/main", folder);
    inspects("", folder, NULL);
    unlink(refs);
    inspects("", folder, NULL); /* the only snapshot */
    make_folders("home/.cache/huggingface/hub/models--org--letters/snapshots/other");
    inspects("", folder, "models--org--letters: has no refs/main, which says which of its snapshots is the model");
    write_bytes(folder, "refs/main", "feed", 4);
    inspects("", folder,
             "models--org--letters: has no snapshot \"feed\", which its refs/main names; download the model again");
    write_bytes(folder, "refs/main", "../../x", 7);
    inspects("", folder, "has no snapshot \"../../x\"");
    write_bytes(folder, "refs/main", "0badc0de", 8);
    inspects("", folder, NULL);
}

/* ---- Other things ------------------------------------------------------------------------------------------------ */

static const char pointer[] = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5\n";
static const char zip[] = "PK\x03\x04\0\0\x08\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
static const char pickle[] = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.";

TEST(files_of_other_kinds_are_named)
{
    static const struct {
        const char *name, *bytes;
        size_t size;
        const char *says;
    } cases[] = {
        {"weights.safetensors", pointer, sizeof pointer - 1,
         "is a Git LFS pointer, not the file that it stands for; 'git lfs"},
        {"pytorch_model.bin", zip, sizeof zip - 1,
         "is a file of PyTorch, a pickle, which is not read; save a model with"},
        {"x.pt", pickle, sizeof pickle - 1, "is a file of PyTorch, a pickle, which is not read; save a model with"},
        {"model.gguf", "GGUF\3\0\0\0\0\0\0\0", 12, "is a GGUF file, which is not read; the safetensors files that it"},
        {"tf_model.h5", "\x89HDF\r\n\x1a\n\0\0\0\0", 12, "is a file of TensorFlow (HDF5), which is not read; save"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char path[300];
        write_bytes(command_folder, cases[n].name, cases[n].bytes, cases[n].size);
        snprintf(path, sizeof path, "%s/%s", command_folder, cases[n].name);
        inspects("", path, cases[n].says);
    }
}

TEST(pointers_of_git_lfs_in_a_folder)
{
    static const char *const names[] = {"config.json", "model.safetensors", "tokenizer.json", "generation_config.json"};
    for (int n = 0; n < 4; n++) {
        char name[16], says[80], line[400];
        snprintf(name, sizeof name, "lfs%d", n);
        const char *folder = letters_make(name, "{}");
        write_bytes(folder, names[n], pointer, sizeof pointer - 1);
        snprintf(says, sizeof says, "%s: is a Git LFS pointer", names[n]);
        snprintf(line, sizeof line, "generate %s -p a", folder);
        const said *it = command("", line);
        expect(it->status == 2 && one_line(it->err) && strstr(it->err, says), "%s: %s", names[n], it->err);
    }
}

/* A header of 640 bytes begins with the bytes of a pickle, 80 02. */
TEST(a_header_that_begins_like_a_pickle)
{
    static char bytes[8 + 640 + 4] = "\x80\x02";
    memset(bytes + 8, ' ', 640);
    memcpy(bytes + 8, "{\"x\": {\"dtype\": \"F32\", \"shape\": [1], \"data_offsets\": [0, 4]}}", 61);
    char path[300];
    write_bytes(command_folder, "pickled.safetensors", bytes, sizeof bytes);
    snprintf(path, sizeof path, "%s/pickled.safetensors", command_folder);
    const char *const says[] = {"pickled.safetensors: "};
    char line[400];
    snprintf(line, sizeof line, "inspect %s", path);
    const said *it = command("", line);
    expect(it->status == 2 && strstr(it->err, says[0]) && !strstr(it->err, "PyTorch"), "%s", it->err);
}

TEST(folders_of_other_kinds_are_named)
{
    static const char *const cases[][3] = {
        {"lora", "adapter_config.json",
         "holds an adapter of PEFT (LoRA), which is not a whole model; merge it into its base"},
        {"pipeline", "model_index.json",
         "holds a pipeline of diffusers, which is not supported; models of transformers among"},
        {"torch", "pytorch_model.bin",
         "has no config.json, as the folder of a model does; it holds pytorch_model.bin; files of "
         "PyTorch are not read"},
        {"checkpoint", "x.pt", "it holds x.pt; files of PyTorch are not read"},
    };
    for (size_t n = 0; n < sizeof cases / sizeof *cases; n++) {
        char folder[300];
        snprintf(folder, sizeof folder, "%s", make_folders(cases[n][0]));
        write_bytes(folder, cases[n][1], "{}", 2);
        inspects("", folder, cases[n][2]);
    }
    const char *joined = letters_make("joined", NULL);
    letters_file(joined, "config.json",
                 "{\"model_type\": \"encoder-decoder\", \"architectures\": [\"EncoderDecoderModel\"],"
                 " \"encoder\": {\"model_type\": \"bert\"}, \"decoder\": {\"model_type\": \"bert\"}}");
    inspects("", joined, "an EncoderDecoderModel joins two models, which is not supported");
    const char *adapted = letters_make("adapted", NULL);
    char path[300];
    letters_file(adapted, "adapter_config.json", "{}");
    snprintf(path, sizeof path, "%s/model.safetensors", adapted);
    unlink(path);
    inspects("", adapted, "holds an adapter of PEFT (LoRA), not its base model");
}
