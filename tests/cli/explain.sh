#!/bin/sh
# Looks at what `mha explain` draws: its width, its colours, the habits of the heads, and whether a reader who follows the
# printed numbers with a calculator arrives at the printed results.
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

runs_and_leaks_nothing() { explain >"$work/out" && [ "$(wc -l <"$work/out")" -gt 90 ]; }
check runs_and_leaks_nothing runs_and_leaks_nothing
# In a sanitizer build looking for leaks takes seconds a process on some machines; the run above has done so.
export ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

# ---- What it looks like --------------------------------------------------------------------------------------------

fits_in_80_columns() {
    for locale in C C.UTF-8; do
        for word in 1 2 3 4 5 6 7 8; do
            for head in 1 2 3 4; do
                LC_ALL=$locale explain --word $word --head $head >"$work/out" || return 1
                width=$(LC_ALL=C.UTF-8 wc -L <"$work/out")
                [ "$width" -le 80 ] || { echo "$locale, word $word, head $head: $width columns" && return 1; }
                ! grep -n ' $' "$work/out" || return 1
            done
        done
    done
    [ "$(explain --help | wc -L)" -le 80 ]
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

# Reads the four maps: the last eight fields of a row are its weights, a dot is zero. Every row adds up to 1 and looks
# where its head's habit says.
habits_hold() {
    explain >"$work/out" && awk '
        function number(field) { return field == "." ? 0 : field + 0 }
        function fail(what) { print "head " head ", row " row ": " what; bad = 1 }
        function expects(i, j) {
            if (head == 1) return j == (i > 1 ? i - 1 : 1)
            if (head == 2) return j == (i < 8 ? i + 1 : 8)
            if (head == 3) return class[i] == class[j]
            return j == 1
        }
        BEGIN { split("det noun pron pron verb adv verb adv", class, " ") }
        $1 == "Head" { head = $2; row = 0 }
        $1 == "Step" { exit }
        head && $NF ~ /^([.]|[0-9][.][0-9][0-9])$/ && NF >= 10 {
            row++; rows++; sum = 0; least = 2; most = 0
            for (j = 1; j <= 8; j++) {
                w = number($(NF - 8 + j)); sum += w
                if (expects(row, j)) { if (w < least) least = w } else if (w > most) most = w
            }
            if (sum < 0.96 || sum > 1.04) fail("adds up to " sum)
            if (least <= most || least < 0.4) fail("the words it should see get " least ", another one " most)
        }
        END { if (rows != 32) { print rows " rows of maps"; bad = 1 }; exit bad }' "$work/out"
}

# Follows one word in one head. A printed number may be off by half a unit of its last place, and so may each factor.
calculator() {
    awk '
        function number(field) { return field == "." ? 0 : field + 0 }
        function near(what, a, b, by) { if (a - b > by || b - a > by) { print what ": " a " is not " b; bad = 1 } }
        $2 == "Project" || $2 == "Attend" || $2 == "Output" { step = $2; rows = line = 0; next }
        /^  ----/ { line = 1; next }
        step == "Project" && !line && NF == 8 {
            for (c = 0; c < 6; c++) sum[c] += number($2) * number($(3 + c))
        }
        step == "Project" && line && NF == 9 {
            for (c = 0; c < 6; c++) near("project " c, number($(2 + c % 2 + 3 * int(c / 2))), sum[c], 0.02)
            q1 = number($2); q2 = number($3); line = 0; seen++
        }
        step == "Attend" && !line && NF == 11 && $1 != "o" {
            near("score of " $1, number($4), (q1 * number($2) + q2 * number($3)) / sqrt(2), 0.02)
            e[++rows] = number($5); w[rows] = number($7); s[rows] = number($4); total += e[rows]
            if (rows == 1 || s[rows] > top) top = s[rows]
            for (d = 0; d < 2; d++) {
                near("product of " $1, number($(10 + d)), w[rows] * number($(8 + d)), 0.001)
                o[d] += number($(10 + d))
            }
        }
        step == "Attend" && line && $3 == "o" {
            if (rows != 8) { print rows " keys"; bad = 1 }
            for (j = 1; j <= rows; j++) {
                near("exp " j, e[j], exp(s[j] - top), 0.002)
                near("weight " j, w[j], e[j] / number($1), 0.001)
            }
            near("sum of exp", number($1), total, 0.005)
            for (d = 0; d < 2; d++) near("o", number($(4 + d)), o[d], 0.005)
            o1 = number($4); o2 = number($5); line = 0; seen++
        }
        step == "Output" && !line && NF >= 10 && ($(NF - 9) == "thing" || $(NF - 9) == "act") && $NF != "act" {
            out[rows++] = number($(NF - 8))
            for (c = 0; c < 8; c++) y[c] += number($(NF - 8)) * number($(NF - 7 + c))
        }
        step == "Output" && line && $1 == "y" {
            for (c = 0; c < 8; c++) near("y " c, number($(2 + c)), y[c], 0.008)
            near("concat", out[2 * (head - 1)], o1, 0); near("concat", out[2 * head - 1], o2, 0); seen++
        }
        END { if (seen != 3) { print seen + 0 " of 3 tables"; bad = 1 }; exit bad }' head="$1" "$work/out"
}

steps_can_be_followed() {
    for word in The cat that I saw yesterday ran away; do
        for head in 1 2 3 4; do
            explain --word $word --head $head >"$work/out" || return 1
            grep -q "^  Step by step: $word in head $head," "$work/out" || return 1
            calculator $head || { echo "$word, head $head" && return 1; }
        done
    done
}

# ---- What it says to the wrong words -------------------------------------------------------------------------------

# Exit 2, nothing on standard output, one line on standard error that names what was wrong.
refuses() {
    wrong=$1
    shift
    explain "$@" >"$work/out" 2>"$work/err"
    status=$?
    echo "exit $status, $(wc -c <"$work/out") bytes of output: $(cat "$work/err")"
    [ $status -eq 2 ] && [ ! -s "$work/out" ] && [ "$(wc -l <"$work/err")" -eq 1 ] &&
        grep '^mha: explain: ' "$work/err" | grep -qF -- "$wrong"
}

wrong_use() {
    refuses dog --word dog && refuses 9 --word 9 && refuses --word --word '' && refuses 0 --head 0 &&
        refuses 2x --head 2x && refuses 99999999999999999999 --head 99999999999999999999 &&
        refuses --head --word cat --head && refuses --tail --tail && refuses cat cat && refuses red --color red
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
check steps_can_be_followed steps_can_be_followed
check wrong_use wrong_use
check help_starts_with_an_example help_starts_with_an_example
check word_by_number_or_case word_by_number_or_case
check full_disk_is_an_error full_disk_is_an_error

printf '%d passed, %d failed' $passed $failed
[ $skipped -eq 0 ] || printf ', %d skipped' $skipped
echo
[ $failed -eq 0 ]
