#!/bin/sh
# Whether the commands that documents show exist, with the options that they show: `mha COMMAND --help` has to name both. And whether
# tests/documents.sh finds what is wrong with documents.
#
#     documents.sh COMMAND...      the mha command, after the emulator that it needs, if any
set -u
cd "$(dirname "$0")/../.." || exit 1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

# shellcheck disable=SC2016 # programs of awk, and Markdown
# A line for each command: WHERE NAME OPTION...; a backslash at the end of a line continues it.
find . -name build -prune -o -name '*.md' ! -name CHANGELOG.md -print | sort | xargs awk '
    FNR == 1 { rest = "" }
    {
        line = rest $0
        rest = ""
        if (line ~ /\\$/) { rest = substr(line, 1, length(line) - 1) " "; next }
        while (match(line, /(^|[ `(])(build\/)?mha [a-z]+( [^`|]*)?/)) {
            text = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            quoted = text ~ /`/ || text ~ /^ *build\// || $0 ~ /^    /
            sub(/^[ `(]*(build\/)?mha /, "", text)
            sub(/   .*/, "", text) # what a command does, behind it
            n = split(text, word, /[ `,;.)]+/)
            if (word[1] ~ /^(is|are|and|has|help|command|in|on|with|does|can|computes|for|at|by|or|to|page|not|did|takes|from|over)$/ || !quoted) continue
            printf "%s:%d %s", FILENAME, FNR, word[1]
            for (i = 2; i <= n; i++) if (word[i] ~ /^--[a-z][a-z-]*/) { sub(/=.*/, "", word[i]); printf " %s", word[i] }
            print ""
        }
    }' >"$work/commands"

passed=0 failed=0
while read -r where name options; do
    if [ ! -e "$work/$name.help" ]; then "$@" "$name" --help >"$work/$name.help" 2>&1 || echo "no such command" >"$work/$name.help"; fi
    wrong=
    grep -q '^Usage: mha' "$work/$name.help" || wrong="there is no command '$name'"
    for option in $options; do
        grep -qE -- "(^|[ ,(])$option([^a-z-]|\$)" "$work/$name.help" || [ "$option" = --help ] || wrong="$wrong mha $name has no $option"
    done
    if [ -z "$wrong" ]; then
        passed=$((passed + 1))
    else
        failed=$((failed + 1))
        echo "FAILED  $where: $wrong"
    fi
done <"$work/commands"
[ $passed -gt 100 ] || { failed=$((failed + 1)) && echo "FAILED  only $passed commands were found"; }

# A tree with one of each fault, and what each is called.
tree=$work/tree
mkdir -p "$tree/docs" && git -C "$tree" init -q || exit 1
{
    echo '# Title'
    # shellcheck disable=SC2016
    echo '[a](docs/absent.md) [b](docs/page.md#absent) [c](docs/page.md#a-heading) `src/absent.c` `docs/page.md`'
} >"$tree/README.md"
printf '# Index\n' >"$tree/docs/README.md"
{
    printf '# Page\n\n## A heading\n'
    awk 'BEGIN { for (i = 0; i < 2300; i++) print "word" }'
} >"$tree/docs/page.md"
sort >"$work/expected" <<'end'
README.md:2: docs/absent.md: no such file
README.md:2: docs/page.md#absent: no such heading
README.md:2: src/absent.c: no such file
docs/page.md: 2303 words, more than 2200: move details to a page of their own
docs/page.md: not in docs/README.md, the index
end
tests/documents.sh "$tree" >"$work/said" && echo 'no fault' >>"$work/said"
if sort "$work/said" | cmp -s - "$work/expected"; then passed=$((passed + 1)); else
    failed=$((failed + 1))
    echo 'FAILED  tests/documents.sh over a tree with faults said:' && sort "$work/said"
fi
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
