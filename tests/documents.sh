#!/usr/bin/env bash
# What documents may not be: linked to nowhere, missing from the index, longer than ten minutes of reading, or about files that are gone.
# All documents of the tree are checked, those that git ignores excepted. Prints a line a breach; exit 1 if there is one. Run by
# `./dev check house`. A folder as the argument is checked in place of the tree, for the tests of this script.
set -euo pipefail
cd "${1:-$(dirname "${BASH_SOURCE[0]}")/..}"
git ls-files -co --exclude-standard | while read -r file; do [ ! -f "$file" ] || echo "$file"; done | LC_ALL=C awk '
    # The longest that a document may be: about ten minutes of reading. The history of changes is not read from end to end.
    function limit(file) { return file == "CHANGELOG.md" ? 1e9 : file == "README.md" ? 1100 : 2200 }

    function breach(where, text) { print where ": " text; breaches++ }

    # The anchor of a heading as GitHub makes it; letters beyond ASCII are kept.
    function anchor(heading) {
        heading = tolower(heading)
        gsub(/\]\([^)]*\)/, "", heading)
        gsub(/[!-,.\/:-@\[-^`{-~]/, "", heading)
        gsub(/ /, "-", heading)
        return heading
    }

    # A path without "NAME/.." and "." in it.
    function plain(path, part, n, i, out, depth) {
        n = split(path, part, "/")
        depth = 0
        for (i = 1; i <= n; i++)
            if (part[i] == "..") depth--
            else if (part[i] != "." && part[i] != "") out[++depth] = part[i]
        path = ""
        for (i = 1; i <= depth; i++) path = path (i > 1 ? "/" : "") out[i]
        return path
    }

    # The folders above a file count as files: documents link to them and name them.
    function note(path) {
        for (known[path]; path ~ /\//; known[path]) sub(/\/[^\/]*$/, "", path)
    }

    function read(file, line, folder, fenced, number, count, words, n, i) {
        folder = file ~ /\// ? file : ""
        sub(/[^\/]*$/, "", folder)
        fenced = number = count = 0
        while ((getline line < file) > 0) {
            number++
            n = split(line, words, /[ \t|]+/)
            for (i = 1; i <= n; i++) count += words[i] ~ /[A-Za-z]/
            if (line ~ /^ *```/) fenced = !fenced
            if (fenced) continue
            if (line ~ /^#+ /) {
                sub(/^#+ */, "", line)
                anchors[file "#" anchor(line)]
            } else if (line !~ /^    /) links(file ":" number, folder, line)
        }
        close(file)
        if (count > limit(file)) breach(file, count " words, more than " limit(file) ": move details to a page of their own")
    }

    # Notes the links of a line, and what it names in back quotes that looks like a file.
    function links(where, folder, line, rest, target) {
        gsub(/<img src="/, "](", line)
        for (rest = line; match(rest, /\]\([^)" ]+/); rest = substr(rest, RSTART + RLENGTH)) {
            target = substr(rest, RSTART + 2, RLENGTH - 2)
            if (target ~ /^[a-z]+:/) continue
            if (target ~ /^#/) target = substr(where, 1, index(where, ":") - 1) target
            else target = plain(folder target)
            wanted[where " " target]
        }
        for (rest = line; match(rest, /`[A-Za-z0-9_.][A-Za-z0-9_.\/-]*`/); rest = substr(rest, RSTART + RLENGTH)) {
            target = substr(rest, RSTART + 1, RLENGTH - 2)
            if (target !~ /NAME|AREA/ && (target ~ /^(include|src|nn|cli|web|bindings|ref|bench|tests|examples|docs|cmake)\/|^[a-z0-9_\/]+\.(c|cu|cuh|def|cmake)$/))
                named[where " " folder " " target]
        }
    }

    { note($0) }
    /\.md$/ { documents[$0] }

    END {
        for (file in documents) read(file)
        for (link in wanted) {
            split(link, word, " ")
            file = word[2]
            sub(/#.*/, "", file)
            if (!(file in known)) breach(word[1], file ": no such file")
            else if (word[2] ~ /#/ && file in documents && !(word[2] in anchors)) breach(word[1], word[2] ": no such heading")
            linked[file]
            if (word[1] ~ /^docs\/README/) indexed[file]
        }
        for (place in named) {
            split(place, word, / /)
            path = word[3]
            sub(/\/$/, "", path)
            if (!(path in known) && !(plain(word[2] path) in known) && !base_is_known(path)) breach(word[1], path ": no such file")
        }
        for (file in documents)
            if (file ~ /^docs\// && file != "docs/README.md" && !(file in indexed)) breach(file, "not in docs/README.md, the index")
        for (file in known)
            if (file ~ /^docs\/.*\.(svg|png)$/ && !(file in linked)) breach(file, "no document shows this picture")
        if (length(documents) == 0) breach(".", "no documents")
        exit breaches > 0
    }

    # `tile.c` names a file of any folder.
    function base_is_known(path, file) {
        if (path ~ /\//) return 0
        for (file in known)
            if (substr(file, length(file) - length(path)) == "/" path) return 1
        return 0
    }
'
