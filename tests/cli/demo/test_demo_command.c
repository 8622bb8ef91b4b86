/* mha demo, on a handful of drawn digits: what it says, what it leaves, and what it refuses. */
#include "cli/page.h"
#include "cli/train/training.h"

static const said *demo(const char *settings, const char *args)
{
    char line[1200];
    snprintf(line, sizeof line, "demo --data synthetic:80 --epochs 1 %s", args);
    return command(settings, line);
}

/* How many lines of the curve there are: each ends with a percentage, after the images, the loss and the bar. */
static int rows_of(const char *out)
{
    int rows = 0;
    for (const char *line = strstr(out, "   images "); line; line = strchr(line, '\n')) {
        long long images;
        double loss;
        rows += sscanf(++line, "%lld %lf", &images, &loss) == 2 && images % 64 == 0; // NOLINT(cert-err34-c)
    }
    return rows;
}

TEST(it_learns_and_shows)
{
    static char svg[1 << 15];
    const said *it = demo("LC_ALL=C", "--out d --color never --threads 2 --index 3");
    if (!expect(it->status == 0 && !*it->err, "exit %d, %s", it->status, it->err)) return;
    expect(widest_line(it->out) <= 80, "a line of %zu columns", widest_line(it->out));
    expect(strstr(it->out, "49 patches of 4 x 4 pixels") && strstr(it->out, "205962 parameters"), "%s", it->out);
    expect(strstr(it->out, "synthetic: drawn by a program"), "it does not say what the digits are");
    expect(rows_of(it->out) == 1, "%d rows", rows_of(it->out));
    expect(strstr(it->out, "% accuracy on 13 synthetic test images: "), "%s", it->out);
    expect(strstr(it->out, "Test image 3, and where each head looks") && strstr(it->out, "label 3: "), "%s", it->out);
    expect(strstr(it->out, "block 5") && strstr(it->out, "head 3"), "%s", it->out);
    expect(strstr(it->out, "mha classify d/vit.safetensors") && strstr(it->out, "mha heads d/vit.safetensors") &&
               strstr(it->out, "mha train vit --preset best"),
           "%s", it->out);
    const char *page = strstr(it->out, "  d/heads.html\n      the page of this model: open it in a browser");
    expect(page && page < strstr(it->out, "  d/curves.svg"), "the page does not come first: %s", it->out);
    slurp("d/curves.svg", svg, sizeof svg);
    expect_closed(svg);
    expect(count_of(svg, "<circle") == 4 && !strstr(svg, "nan") && !strstr(svg, "inf"), "no curves");
    expect(!strcmp(note_of("d/vit.safetensors", "preset"), "demo"), "%s", note_of("d/vit.safetensors", "preset"));
    it = command("", "eval d/vit.safetensors --data synthetic:80");
    expect(it->status == 0, "%s", it->err);
    it = command("", "view d/vit.safetensors --data synthetic:80 -o view.html");
    expect(it->status == 0 && same_bytes("d/heads.html", "view.html"), "not the page of mha view: %s", it->err);
}

#ifndef MHA_SLOW /* test_train_command has a smaller model for that */
TEST(the_same_bytes_on_any_number_of_threads)
{
    demo("", "--out one --threads 1");
    demo("", "--out seven --threads 7");
    demo("", "--out other --threads 1 --seed 2");
    expect(same_bytes("one/vit.safetensors", "seven/vit.safetensors"), "7 threads end elsewhere");
    expect(!same_bytes("one/vit.safetensors", "other/vit.safetensors"), "the seed does not matter");
}
#endif

static void refuse(const char *args, const char *line)
{
    const said *it = command("", args);
    expect(it->status == 2 && !*it->out, "%s: exit %d, %s", args, it->status, it->out);
    expect(strncmp(it->err, line, strlen(line)) == 0 && strchr(it->err, '\n') == it->err + strlen(it->err) - 1,
           "%s: %s", args, it->err);
}

TEST(bad_wishes_are_one_line)
{
    FILE *file = fopen("file", "w");
    if (file) fclose(file);
    expect(mkdir("full", 0777) == 0 && mkdir("full/heads.html", 0777) == 0, "no folders");
    refuse("demo --epochs 0", "mha: demo: --epochs must be a number from 1 to 1000, not '0'");
    refuse("demo --data nowhere --out e", "mha: nowhere");
    refuse("demo --data synthetic:x --out e", "mha: demo: --data synthetic:N must be a number from 1 to");
    refuse("demo -o file", "mha: demo: cannot create the folder file: Not a directory");
    refuse("demo -o no/where", "mha: demo: cannot create the folder no/where: No such file or directory");
    refuse("demo --data synthetic:60 --index 10 --out e",
           "mha: demo: no test image 10; the data set has images 0 to 9");
    refuse("demo --data synthetic:30 --out e", "mha: demo: the batch is larger than the training set");
    refuse("demo --data synthetic:120 --out full", "mha: full/heads.html: not a regular file");
    refuse("demo mnist", "mha: demo: ");
    refuse("demo --epohcs 3", "mha: demo: unknown option '--epohcs'; did you mean '--epochs'?");
    expect(!there("e") && !there("full/vit.safetensors"), "something was written");
}
