#!/usr/bin/env bash
# The rules of the house that no compiler knows: which folder may include which, what a file may not contain or be.
# Prints a line a breach; exit 1 if there is one. Run by `./dev check house`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
breaches=0
breach() { echo "$*" && breaches=$((breaches + 1)); }
files() { git ls-files -co --exclude-standard -- "$@" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }
code() { files '*.c' '*.h' '*.def' '*.inc' '*.cpp' '*.sh' '*.py' '*.cmake' '*.txt' '*.in' '*.json' \
    '*.js' '*.mjs' '*.css' '*.html' dev .ci/run; }

# Arrows point one way. Tests may see everything, and nothing may see them.
may_see() {
    case $1 in
        include) echo include ;;
        src/core) echo include src/core ;;
        src/cpu) echo include src/core src/cpu ;;
        src/attention) echo include src/core src/cpu src/attention ;;
        src/layer) echo include src/core src/cpu src/attention src/layer ;;
        nn) echo include nn ;;
        ref) echo ref ;;
        bench) echo include src/core src/cpu ref nn bench ;;
        cli) echo include nn bench cli ;;
        *) echo anything ;;
    esac
}

# The folder of the file that an #include of $2 in a file of folder $1 means; nothing for a header of the system.
folder_of() {
    local dir
    for dir in "$1" include src nn ref cli tests bench; do
        if [ -f "$dir/$2" ]; then realpath --relative-to=. "$(dirname "$dir/$2")" && return; fi
    done
}

while IFS=: read -r file _ name; do
    from=$(dirname "$file")
    seen=$(folder_of "$from" "$name")
    case " $(may_see "$from") " in
        *" ${seen:-anything} "* | *' anything '*) ;;
        *) [ -z "$seen" ] || breach "$file: includes $name of $seen, which $from may not see" ;;
    esac
done < <(files '*.c' '*.h' '*.def' '*.inc' | xargs grep -nE '^ *# *include *[<"]' |
    sed -E 's/^([^:]*:[0-9]+):[^<"]*[<"]([^>"]*).*/\1:\2/')

while read -r file; do
    [ "$(wc -l <"$file")" -le 800 ] || breach "$file: over 800 lines, so there are two concepts in it"
done < <(code)

# Letters in brackets keep these patterns from finding themselves.
forbid() {
    local found
    found=$(code | xargs grep -nE -- "$1" || true)
    [ -z "$found" ] || breach "$found"$'\n'"    $2"
}
forbid '-ffast[-]math|-O[f]ast|-march=[n]ative' 'these flags break infinities, which masks need, or other machines'
forbid '\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b' 'finish it or leave it out'
forbid '^[[:space:]]*#[[:space:]]*if[[:space:]]+0\b' 'dead code'
forbid '[[:space:]]+$' 'space at the end of a line'

[ "$breaches" -eq 0 ]
