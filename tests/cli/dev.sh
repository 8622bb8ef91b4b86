#!/bin/sh
# Looks at what ./dev makes of a checkout that was moved or copied after it was built, and of tests that are skipped, with
# a small project around the script.
#
#     dev.sh DEV      the script
set -u
dev=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT
passed=0 failed=0
for tool in bash cmake ninja; do
    command -v $tool >/dev/null || { echo "  -     dev: no $tool" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }
done

mkdir "$work/first"
cp "$dev" "$work/first/dev"
cat >"$work/first/CMakeLists.txt" <<'end'
cmake_minimum_required(VERSION 3.22)
project(small NONE)
add_custom_command(OUTPUT made COMMAND ${CMAKE_COMMAND} -E touch made DEPENDS ${PROJECT_SOURCE_DIR}/CMakeLists.txt)
add_custom_target(all_of_it ALL DEPENDS made)
enable_testing()
add_test(NAME whole COMMAND printf "  -     whole: none here\\n0 passed, 0 failed, 1 skipped\\n")
set_tests_properties(whole PROPERTIES SKIP_REGULAR_EXPRESSION "(^|\n)0 passed, 0 failed, ")
add_test(NAME part COMMAND printf "  ok    one\\n  -     other: none here\\n10 passed, 0 failed, 1 skipped\\n")
add_test(NAME sampled COMMAND sh -c "echo one in \$MHA_SAMPLE. >>sampled && echo '1 passed, 0 failed'")
end
cat >"$work/first/CMakePresets.json" <<'end'
{"version": 3,
 "configurePresets": [{"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build"}],
 "buildPresets": [{"name": "release", "configurePreset": "release"}],
 "testPresets": [{"name": "release", "configurePreset": "release"}]}
end

# expect WHAT COMMAND...: the case passes if the command does.
expect() {
    if "${@}" >/dev/null 2>&1; then passed=$((passed + 1)); else
        failed=$((failed + 1))
        echo "FAILED  $*"
        cat "$work/said"
    fi
}

# build FOLDER: ./dev build in it; what it says goes to $work/said.
build() { MHA_SETUP=no "$work/$1/dev" build >"$work/said" 2>&1; }
says() { grep -q "$1" "$work/said"; }
silent() { ! says 'was configured for'; }

expect build first
expect silent
expect build first # nothing has moved
expect silent
echo kept >"$work/first/build/model"
mv "$work/first" "$work/second"
expect build second
expect says "build was configured for $work/first; configuring it for $work/second"
expect grep -q kept "$work/second/build/model"
cp -r "$work/second" "$work/third" # the old place is still there
expect build third
expect says "build was configured for $work/second; configuring it for $work/third"
expect grep -q "^CMAKE_HOME_DIRECTORY:INTERNAL=$work/third$" "$work/third/build/CMakeCache.txt"
ln -s third "$work/link"
expect build link # the same place by another name
expect silent

# tests REQUIRE_ALL: ./dev test; what it prints goes to $work/said.
tests() { env -u MHA_SAMPLE MHA_SETUP=no MHA_REQUIRE_ALL="$1" "$work/third/dev" test >"$work/said" 2>&1; }
expect tests ''
expect says '^11 passed, 0 failed, 2 skipped$'
expect says '^  -     other: none here$'
expect tests 0
refused() { ! tests 1; }
expect refused
expect says '^11 passed, 2 failed$'
expect says '^FAILED  whole: none here$'
expect says '^FAILED  other: none here$'

# All tests together run a sample of the cases, unless the caller says otherwise; a chosen test runs all.
sampled() {
    env -u MHA_SAMPLE -u MHA_REQUIRE_ALL MHA_SETUP=no "$@" >/dev/null 2>&1 && tail -n 1 "$work/third/build/sampled" >"$work/said"
}
expect sampled "$work/third/dev" test
expect says '^one in 8\.$'
expect sampled MHA_SAMPLE=1 "$work/third/dev" test
expect says '^one in 1\.$'
expect sampled "$work/third/dev" test sampled
expect says '^one in \.$'

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
