#!/usr/bin/env bash
# The rules of the house that no compiler knows: which folder may include which, what a file may not contain or be.
# Prints a line a breach; exit 1 if there is one. Run by `./dev check house`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
breaches=0
breach() { echo "$*" && breaches=$((breaches + 1)); }
files() { git ls-files -co --exclude-standard -- "$@" | while read -r file; do [ ! -f "$file" ] || echo "$file"; done; }
code() { files '*.c' '*.h' '*.def' '*.inc' '*.cpp' '*.sh' '*.py' '*.pyi' '*.toml' '*.cmake' '*.txt' '*.in' '*.json' \
    '*.js' '*.mjs' '*.css' '*.html' dev .ci/run; }

# Arrows point one way: what the files of a folder may include beside those of their own folder. Tests may see
# everything, and nothing may see them.
may_see() {
    case $1 in
        include | ref) ;;
        src/core) echo include ;;
        src/attention | src/ops) echo include src/core ;;
        src/cpu/isa) echo src/core ;;
        src/cpu/engine) echo src/core src/cpu/isa ;;
        src/cpu/matmul) echo src/core src/cpu/isa src/cpu/engine ;;
        src/cpu/attention) echo src/core src/attention src/cpu/isa src/cpu/engine ;;
        src/cpu/attention/*) echo src/core src/attention src/cpu/isa src/cpu/engine src/cpu/attention ;;
        src/cpu/rows) echo src/core src/attention src/cpu/isa ;;
        src/cpu/ops) echo src/core src/cpu/isa src/cpu/rows ;;
        src/cpu) echo src/core src/cpu/isa src/cpu/engine src/cpu/matmul src/cpu/ops src/cpu/rows src/cpu/attention src/cpu/attention/backward src/cpu/attention/stats ;;
        src/cuda/kernels) ;;
        src/cuda/device) echo include src/core src/cuda/kernels ;;
        src/cuda/attention) echo include src/core src/attention src/cuda/kernels src/cuda/device ;;
        src/cuda/ops) echo src/core src/attention src/cuda/kernels src/cuda/device src/cuda/attention ;;
        src/cuda) echo include src/core src/cuda/device src/cuda/attention src/cuda/ops ;;
        src/layer) echo src/core src/attention ;;
        nn/io) echo include ;;
        nn/io/wasi | nn/io/hub) echo include nn/io ;;
        nn/ops) echo include ;;
        nn/layer) echo include nn/io nn/model nn/program nn/families ;;
        nn/text) echo include nn/io ;;
        nn/text/files | nn/text/train) echo include nn/io nn/io/hub nn/text ;;
        nn/data) echo include nn/io nn/ops ;;
        nn/data/fit) echo nn/io ;;
        nn/model) echo include nn/ops ;;
        nn/program) echo include nn/io nn/ops nn/model ;;
        nn/program/operations) echo include nn/ops nn/program ;;
        nn/families/*) echo nn/families ;;
        nn/families) echo include nn/io nn/model nn/program ;;
        nn/generate) echo include nn/io nn/ops nn/model nn/program ;;
        nn/public) echo include nn/io nn/io/hub nn/layer nn/data nn/model nn/program nn/families nn/train nn/inspect nn/text nn/text/files nn/text/train nn/generate ;;
        nn/train | nn/inspect) echo include nn/io nn/ops nn/data nn/model nn/program nn/families nn/train ;;
        nn/inspect/text) echo include nn/model nn/program ;;
        nn/public/vision) echo include nn/io nn/data nn/data/fit nn/families nn/public ;;
        nn/public/speech) echo include nn/data nn/public ;;
        nn/public/text) echo include nn/io nn/io/hub nn/ops nn/model nn/program nn/families nn/inspect/text nn/public ;;
        bench) echo include src/core src/cpu/isa src/cpu/engine ref nn/io nn/data nn/model nn/program nn/families nn/train ;;
        cli/draw) echo include nn/io ;;
        cli/terminal) echo include nn/io cli/draw ;;
        cli/common) echo include nn/io nn/io/hub cli/draw cli/terminal ;;
        cli/maps) echo include nn/io cli/draw cli/common ;;
        cli/classify | cli/demo | cli/eval | cli/heads | cli/prune | cli/train | cli/view) echo include nn/io cli/common cli/draw cli/terminal cli/maps "$(guests "$1")" ;;
        cli/layer | cli/explain | cli/info | cli/inspect | cli/tokenize | cli/generate | cli/embed | cli/fill | cli/transcribe) echo include nn/io cli/common cli/draw cli/terminal ;;
        cli/bench) echo include bench nn/io cli/common cli/draw ;;
        cli) echo include cli/common cli/terminal ;;
        tools/conformance) echo include nn/io cli/common cli/draw cli/terminal ;;
        bindings/python/src) echo include ;;
        web/base) ;;
        web/engine) echo include web/base ;;
        web/vit | web/attention) echo web/base ;;
        web/heads | web/steps) echo web/base web/vit ;;
        web/draw) echo web/base web/vit web/heads ;;
        web/learn) echo web/base web/engine web/vit web/draw ;;
        web/write) echo web/base web/engine web/attention ;;
        web/share) echo web/base web/learn web/steps web/write ;;
        web/pages) echo web/base web/engine web/vit web/heads web/draw web/learn web/attention web/steps web/write web/share ;;
        web) echo web/share web/pages ;;
        examples) echo include ;;
        tests | tests/*) echo anything ;;
    esac
}

# The commands whose code another command uses.
guests() {
    case $1 in
        cli/classify) echo cli/view ;;
        cli/demo) echo cli/train cli/view ;;
        cli/prune) echo cli/train ;;
        cli/view) echo cli/heads ;;
    esac
}

# The imports of the page's modules, as FILE:LINE:IMPORTED FILE.
imports() {
    # shellcheck disable=SC2016 # of awk
    files 'web/*.js' | xargs awk '
        /\} from \047[^\047]*\047;$/ {
            name = $0; sub(/\047;$/, "", name); sub(/.*\047(\.\/)?/, "", name)
            dir = FILENAME; sub(/\/[^\/]*$/, "", dir)
            while (sub(/^\.\.\//, "", name)) sub(/\/[^\/]*$/, "", dir)
            print FILENAME ":" FNR ":" dir "/" name
        }'
}

# Sets $seen: the folder of the file that an #include of $2 in a file of folder $1 means; nothing for a header of the system.
find_folder() {
    local dir
    for dir in "$1" include src nn ref . tests bench; do
        seen=$dir/$2
        seen=${seen%/*}
        seen=${seen#./}
        [ ! -f "$dir/$2" ] || return 0
    done
    seen=
}

# Nothing here starts a process for every #include: there are thousands.
declare -A visible arrows
while IFS=: read -r file _ name; do
    from=${file%/*}
    [ -n "${visible[$from]:-}" ] || visible[$from]=" $from $(may_see "$from") "
    [[ ${visible[$from]} != *' anything '* ]] || continue
    find_folder "$from" "$name"
    [[ $seen != *..* ]] || seen=$(realpath --relative-to=. "$seen")
    [[ -z $seen || ${visible[$from]} == *" $seen "* ]] ||
        breach "$file: includes $name of $seen, which $from may not see"
    [[ -z $seen || $seen == "$from" ]] || arrows["$from $seen"]=1
done < <(files '*.c' '*.h' '*.def' '*.inc' | xargs grep -nE '^ *# *include *[<"]' |
    sed -E 's/^([^:]*:[0-9]+):[^<"]*[<"]([^>"]*).*/\1:\2/'
    imports)

# Prints the lines of a circle in pairs of names, of which the first needs the second.
circle_of() { tsort 2>&1 >/dev/null | sed -n '2,$ { /loop/q; s/^tsort: //p; }' | xargs; }
circle=$(printf '%s\n' "${!arrows[@]}" | circle_of) || true
[ -z "$circle" ] || breach "folders that need each other: $circle"
circle=$(imports | sed -E 's/:[0-9]+:/ /' | circle_of) || true
[ -z "$circle" ] || breach "circular imports: $circle"

while read -r long; do
    breach "$long"
done < <(files '*.c' '*.h' | grep -vE '^tests/|_body\.h$' | xargs awk '
    FNR == 1 { start = 0 }
    /^\{/ { start = FNR }
    /^\}/ { if (start && FNR - start > 60) print FILENAME ":" start ": a function of over 60 lines"; start = 0 }')

# Letters in brackets keep these patterns from finding themselves.
forbid() {
    local found
    found=$(code | xargs grep -nE -- "$1" || true)
    [ -z "$found" ] || breach "$found"$'\n'"    $2"
}
forbid 'mha_context \*[a-z]+ = .*(handle_context|context_get|context_get_team|fields_context)[(]' \
    'a context that is not held may be freed by Python that runs in between: HELD_CONTEXT (bindings/python/src/module.h)'
forbid '-ffast[-]math|-O[f]ast|-march=[n]ative' 'these flags break infinities, which masks need, or other machines'
forbid '\b(TO[D]O|FIX[M]E|XX[X]|HAC[K])\b' 'finish it or leave it out'
forbid '^[[:space:]]*#[[:space:]]*if[[:space:]]+0\b' 'dead code'
forbid '[[:space:]]+$' 'space at the end of a line'

[ "$breaches" -eq 0 ]
