#!/bin/sh
# Looks at what `mha explain` draws: its width, its colours, the habits of the heads, and whether a reader who follows the
# printed numbers with a calculator arrives at the printed results; and whether docs/attention.md shows what is printed.
#
#     explain.sh COMMAND...      the mha command, after the emulator that it needs, if any
set -u
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
escape=$(printf '\033')
unset NO_COLOR COLORTERM
export TERM=xterm-256color LC_ALL=C

# The command as one file, so that a terminal can be wrapped around it.
{
    echo '#!/bin/sh'
    printf 'exec'
    for word; do printf " '%s'" "$(printf %s "$word" | sed "s/'/'\\\\''/g")"; done
    # shellcheck disable=SC2016 # the $@ of the file that is written here
    echo ' explain "$@"'
} >"$work/explain"
chmod +x "$work/explain"
explain() { "$work/explain" "$@"; }

# check NAME TEST...: one test; what it prints is shown only if it fails.
check() {
    name=$1
    shift
    if "$@" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok    $name"
    else
        failed=$((failed + 1))
        sed 's/^/    /' "$work/log"
        echo "FAILED  $name"
    fi
}

runs_and_leaks_nothing() { explain >"$work/out" && [ "$(wc -l <"$work/out")" -gt 150 ]; }
check runs_and_leaks_nothing runs_and_leaks_nothing

# ---- What it looks like --------------------------------------------------------------------------------------------

# at_most_80 [OPTION...]: in both kinds of locale, and no space at the end of a line.
at_most_80() {
    for locale in C C.UTF-8; do
        LC_ALL=$locale explain "$@" >"$work/out" || return 1
        width=$(LC_ALL=C.UTF-8 wc -L <"$work/out")
        [ "$width" -le 80 ] || { echo "$locale, $*: $width columns" && return 1; }
        ! grep -n ' $' "$work/out" || return 1
    done
}

many='a b c d e f g h i j k l m n o p q r s t u v w incomprehensibilities'
script='\0347\0247\0201\0343\0201\0257\0346\0230\0250\0346\0227\0245 \0320\0237\0321\0200\0320\0270\0320\0262\0320\0265\0321\0202 e\0314\0201te\0314\0201 \0355\0225\0234\0352\0265\0255\0354\0226\0264'
fits_in_80_columns() {
    for word in 1 2 3 4 5 6 7 8; do
        for head in 1 2 3 4; do at_most_80 --word $word --head $head || return 1; done
    done
    at_most_80 --causal && at_most_80 --heads 16 --causal --head 16 && at_most_80 --heads 1 --width 64 &&
        at_most_80 --text "$many" --width 64 --heads 16 --head 4 || return 1
    at_most_80 --text "$many" --cross "$many" --heads 8 && at_most_80 --text a --cross "$many" --heads 5 --width 35 &&
        at_most_80 --text "$(printf %b "$script")" --heads 3 --width 12 --head 2 && [ "$(explain --help | wc -L)" -le 80 ]
}

plain_when_piped() { explain >"$work/out" && ! grep "$escape" "$work/out"; }
ascii_without_utf8() { explain >"$work/out" && ! grep '[^ -~]' "$work/out"; }
colour_when_forced() { NO_COLOR=1 explain --color always | grep -qF "${escape}[48;5;"; }
true_colour_when_able() { COLORTERM=truecolor explain --color always | grep -qF "${escape}[48;2;"; }

on_terminal() { script -qec "'$work/explain' $1" /dev/null </dev/null; }
terminal_gets_colour() { on_terminal '' | grep -qF "$escape"; }
terminal_with_no_color() { (NO_COLOR=1 && export NO_COLOR && ! on_terminal '' | grep -F "$escape"); }
terminal_that_is_dumb() { (TERM=dumb && export TERM && ! on_terminal '' | grep -F "$escape"); }
terminal_told_never() { ! on_terminal '--color never' | grep -F "$escape"; }

# ---- What the numbers say ------------------------------------------------------------------------------------------

# Reads the four maps: the last eight fields of a row are its weights, a dot is zero. Every row adds up to 1 and attends
# to the words that its head's habit says.
habits_hold() {
    explain >"$work/out" && awk '
        function number(field) { return field == "." ? 0 : field + 0 }
        function fail(what) { print "head " head ", row " row ": " what; bad = 1 }
        function expects(i, j) {
            if (head == 1) return j == (i < 8 ? i + 1 : 8)
            if (head == 2) return partner[i] ? j == partner[i] : clause[i] == clause[j]
            if (head == 3 && i == 2) return clause[j] == "rel"
            if (head == 3 && clause[i] == "rel") return j == 2
            return 1
        }
        BEGIN {
            split("main main rel rel rel rel main main", clause, " ")
            partner[2] = 7; partner[7] = 2; partner[4] = 5; partner[5] = 4
        }
        $1 == "Head" { head = $2; row = 0 }
        $1 == "Step" { exit }
        head && $NF ~ /^([.]|[0-9][.][0-9][0-9])$/ && NF >= 10 {
            row++; rows++; sum = seen = 0; least = 2; most = 0
            for (j = 1; j <= 8; j++) {
                w = number($(NF - 8 + j)); sum += w
                if (expects(row, j)) { seen += w; if (w < least) least = w } else if (w > most) most = w
            }
            if (sum < 0.95 || sum > 1.05) fail("adds up to " sum)
            if (least <= most || seen < 0.75) fail("the words it should see get " seen ", another one " most)
        }
        END { if (rows != 32) { print rows " rows of maps"; bad = 1 }; exit bad }' "$work/out"
}

# Follows one word in one head through all tables. A printed number may be off by half a unit of its last place, and so
# may each factor.
calculator() {
    awk '
        function number(field) { return field == "." ? 0 : field + 0 }
        function near(what, a, b, by) { if (a - b > by || b - a > by) { print what ": " a " is not " b; bad = 1 } }
        $2 ~ /^(Project|Score|Sum|Concat|Output)$/ { step = $2; rows = line = 0; next }
        /^  ----/ { line = 1; next }
        step == "Project" && !line && NF == 8 {
            for (c = 0; c < 6; c++) sum[c] += number($2) * number($(3 + c))
        }
        step == "Project" && line && NF == 9 {
            for (c = 0; c < 6; c++) near("project " c, number($(2 + c % 2 + 3 * int(c / 2))), sum[c], 0.02)
            q1 = number($2); q2 = number($3); line = 0; seen++
        }
        step == "Score" && !line && NF == 8 + causal && $1 != "k" && $1 != "Mask" {
            near("score of " $1, number($4), q1 * number($2) + q2 * number($3), 0.02)
            near("scaled score of " $1, number($5), number($4) / sqrt(2), 0.001)
            if (causal && $6 != "-inf") near("masked score of " $1, number($6), number($5), 0)
            hidden[++rows] = causal && $6 == "-inf"
            e[rows] = number($(6 + causal)); w[rows] = number($NF); s[rows] = number($5); total += e[rows]
            if (!hidden[rows] && (!tops++ || s[rows] > top)) top = s[rows]
        }
        step == "Score" && line && NF == 2 {
            if (rows != 8) { print rows " keys"; bad = 1 }
            for (j = 1; j <= rows; j++) {
                if (causal && hidden[j] != (j > word)) { print "key " j " is hidden or not"; bad = 1 }
                near("exp " j, e[j], hidden[j] ? 0 : exp(s[j] - top), 0.002)
                near("weight " j, w[j], e[j] / number($1), 0.001)
            }
            near("sum of exp", number($1), total, 0.005); near("sum of weights", number($2), 1, 0.001)
            line = 0; seen++
        }
        step == "Sum" && !line && NF == 6 && $2 != "v" {
            near("weight of " $1, number($2), w[++rows], 0)
            for (d = 0; d < 2; d++) {
                near("product of " $1, number($(5 + d)), w[rows] * number($(3 + d)), 0.001)
                o[d] += number($(5 + d))
            }
        }
        step == "Sum" && line && $1 == "o" {
            for (d = 0; d < 2; d++) near("o", number($(2 + d)), o[d], 0.005)
            o1 = number($2); o2 = number($3); line = 0; seen++
        }
        step == "Concat" && NF == 9 && $1 != "concat" && ++rows == word {
            for (c = 0; c < 8; c++) joined[c] = number($(2 + c))
            near("concat", joined[2 * head - 2], o1, 0); near("concat", joined[2 * head - 1], o2, 0); seen++
        }
        step == "Output" && !line && (NF == 6 || NF == 8) && $(NF - 4) ~ /[0-9.]/ && $1 ~ /^(h[1-4]|2)$/ {
            near("concat again", number($(NF - 4)), joined[rows++], 0)
            for (c = 0; c < 4; c++) y[c] += number($(NF - 4)) * number($(NF - 3 + c))
        }
        step == "Output" && line && $1 == "y" {
            for (c = 0; c < 4; c++) {
                near("y " c, number($(2 + c)), y[c], 0.008)
                result[results++] = number($(2 + c)); y[c] = 0
            }
            rows = line = 0; seen++
        }
        step == "Output" && $1 == "Y" { last = 1; rows = 0; next }
        last && NF == 9 && ++rows == word { for (c = 0; c < 8; c++) near("Y", number($(2 + c)), result[c], 0); seen++ }
        END { if (seen != 7) { print seen + 0 " of 7 tables"; bad = 1 }; exit bad }' \
        word="$1" head="$2" causal="$3" "$work/out"
}

steps_can_be_followed() {
    number=0
    for word in The cat that I saw yesterday ran away; do
        number=$((number + 1))
        for head in 1 2 3 4; do
            explain --word $word --head $head >"$work/out" || return 1
            grep -q "^  Step by step: $word in head $head," "$work/out" || return 1
            calculator $number $head 0 || { echo "$word, head $head" && return 1; }
            explain --word $word --head $head --causal >"$work/out" || return 1
            calculator $number $head 1 || { echo "$word, head $head, causal" && return 1; }
        done
    done
}

finds_the_main_clause() {
    explain | grep -q 'Largest values: doer cat 0.[34]., deed ran 0.[34].' && ! explain --text 'a b' | grep -q doer
}

# ---- What it says to the wrong words -------------------------------------------------------------------------------

# Exit 2, nothing on standard output, one line on standard error that names what was wrong.
# (A message about a file begins with its name.)
refuses() {
    wrong=$1
    shift
    explain "$@" >"$work/out" 2>"$work/err"
    status=$?
    echo "exit $status, $(wc -c <"$work/out") bytes of output: $(cat "$work/err")"
    [ $status -eq 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" -eq 1 ] &&
        grep -E '^mha: (explain: |/)' "$work/err" | grep -qF -- "$wrong"
}

wrong_use() {
    refuses dog --word dog && refuses 9 --word 9 && refuses --word --word '' && refuses 0 --head 0 &&
        refuses 2x --head 2x && refuses 99999999999999999999 --head 99999999999999999999 &&
        refuses --head --word cat --head && refuses --tail --tail && refuses cat cat && refuses red --color red
}

wrong_sentence() {
    refuses 'no words' --text '' && refuses '--cross has no words' --cross ' ' && refuses 'more than 24' --text "$many x" &&
        refuses 'UTF-8 at byte 2' --text "$(printf 'a\377')" && refuses 'UTF-8 at byte 1' --text "$(printf '\300\200')" &&
        refuses 'control character at byte 3' --text "$(printf 'ab\033[2J')" && refuses 'word 2 of --text is longer' --text "a $(printf '%0100d' 0)" &&
        refuses 'control character' --cross "$(printf 'a\342\200\256b')" && refuses right-to-left --text "$(printf '\327\251')"
}

wrong_sizes() {
    refuses '9 would be' --heads 3 --width 8 && refuses '60 would be' --heads 15 --width 61 &&
        refuses '--width 16 would do' --heads 8 --width 8 && refuses 'from 1 to 16' --heads 17 && refuses 'from 1 to 16' --heads 0 &&
        refuses 'from 6 to 64' --width 5 && refuses 'from 6 to 64' --width 65 && refuses 'from 1 to 2' --heads 2 --head 3 &&
        refuses '--causal and --cross exclude each other' --causal --cross a && refuses 'exclude each other' --json --diagram &&
        refuses '-o needs --diagram' -o "$work/x.svg" && refuses '.svg or as .mmd' --diagram -o "$work/x.png" &&
        refuses 'No such file' --diagram -o "$work/no/x.svg" && [ ! -e "$work/x.svg" ] && [ ! -e "$work/x.png" ]
}

help_starts_with_an_example() { explain --help >"$work/out" && [ "$(head -n 1 "$work/out")" = Examples: ]; }
word_by_number_or_case() {
    explain --word 2 >"$work/out" && explain --word CAT >"$work/also" && cmp "$work/out" "$work/also"
}
full_disk_is_an_error() {
    [ -c /dev/full ] || return 0
    explain >/dev/full
    [ $? -eq 1 ]
}

# ---- The document ---------------------------------------------------------------------------------------------------

docs=$(dirname "$0")/../../../docs

# Every block of attention.md that begins with a command of explain is what that command prints: the same lines in the same
# order, beginning at any line; "..." stands for lines that are left out.
document_shows_what_is_printed() {
    rm -f "$work"/block.*
    awk -v out="$work/block." '
        /^```console$/ { blocks++; file = out blocks; next }
        /^```/ { file = "" }
        file { print >file }' "$docs/attention.md"
    [ -e "$work/block.4" ] || { echo 'fewer than four examples' && return 1; }
    for block in "$work"/block.*; do
        options=$(sed -n '1s/^[$] build\/mha explain//p' "$block")
        head -n 1 "$block" | grep -q '^[$] build/mha explain' || { head -n 1 "$block" && return 1; }
        # shellcheck disable=SC2086 # the options of a command, without quotes in the document
        LC_ALL=C.UTF-8 explain $options >"$work/out" || return 1
        awk 'NR == FNR { printed[++lines] = $0; next }
             FNR == 1 { gap = 1; next }
             $0 == "..." { gap = 1; next }
             { do at++; while (gap && at <= lines && printed[at] != $0); gap = 0 }
             at > lines || printed[at] != $0 { print "not printed, or not here: " $0; exit 1 }' "$work/out" "$block" || return 1
    done
}
document_shows_the_diagram() {
    explain --diagram -o "$work/diagram.svg" && cmp "$work/diagram.svg" "$docs/attention.svg"
}

check fits_in_80_columns fits_in_80_columns
check plain_when_piped plain_when_piped
check ascii_without_utf8 ascii_without_utf8
check colour_when_forced colour_when_forced
check true_colour_when_able true_colour_when_able
for test in terminal_gets_colour terminal_with_no_color terminal_that_is_dumb terminal_told_never; do
    if command -v script >/dev/null; then
        check $test $test
    else
        skipped=$((skipped + 1))
        echo "  -     $test: no script command here"
    fi
done
check habits_hold habits_hold
check finds_the_main_clause finds_the_main_clause
check steps_can_be_followed steps_can_be_followed
check wrong_use wrong_use
check wrong_sentence wrong_sentence
check wrong_sizes wrong_sizes
check help_starts_with_an_example help_starts_with_an_example
check word_by_number_or_case word_by_number_or_case
check full_disk_is_an_error full_disk_is_an_error
check document_shows_what_is_printed document_shows_what_is_printed
check document_shows_the_diagram document_shows_the_diagram

printf '%d passed, %d failed' $passed $failed
[ $skipped -eq 0 ] || printf ', %d skipped' $skipped
echo
[ $failed -eq 0 ]
