#!/bin/sh
# Looks at what ./dev makes of a checkout that was moved or copied after it was built, of tests that are skipped or slow, of MHA_CUDA,
# and of a terminal, with a small project around the script.
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
set(MHA_CUDA AUTO CACHE STRING "")
foreach(name mha_shipped tests_quick test_one rest)
  add_custom_command(OUTPUT ${name}.made COMMAND ${CMAKE_COMMAND} -E touch ${name}.made DEPENDS ${PROJECT_SOURCE_DIR}/CMakeLists.txt)
  add_custom_target(${name} ALL DEPENDS ${name}.made)
endforeach()
enable_testing()
add_test(NAME whole COMMAND printf "  -     whole: none here\\n0 passed, 0 failed, 1 skipped\\n")
set_tests_properties(whole PROPERTIES SKIP_REGULAR_EXPRESSION "(^|\n)0 passed, 0 failed, ")
add_test(NAME part COMMAND printf "  ok    one\\n  -     other: none here\\n10 passed, 0 failed, 1 skipped\\n")
add_test(NAME sampled COMMAND sh -c "echo one in \$MHA_SAMPLE. >>sampled && echo '1 passed, 0 failed'")
add_test(NAME slow COMMAND sh -c "echo slow >>sampled && echo '1 passed, 0 failed'")
set_tests_properties(slow PROPERTIES LABELS "host;slow")
add_test(NAME cuda_one COMMAND sh -c "echo '${MHA_CUDA}' >>sampled && echo '1 passed, 0 failed'")
set_tests_properties(cuda_one PROPERTIES LABELS slow)
# A program in the place where test programs lie, of which no other target is needed.
file(WRITE ${PROJECT_BINARY_DIR}/two "#!/bin/sh\necho '1 passed, 0 failed'\n")
file(CHMOD ${PROJECT_BINARY_DIR}/two PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
add_custom_target(test_two COMMAND ${CMAKE_COMMAND} -E copy two tests/test_two)
add_test(NAME two COMMAND ${PROJECT_BINARY_DIR}/tests/test_two)
set_tests_properties(two PROPERTIES LABELS slow)
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
silent() { ! says 'stale'; }

unset MHA_CUDA
expect build first
expect silent
built() { [ -e "$work/$1/build/$2.made" ]; }
not_built() { ! built "$@"; }
expect built first mha_shipped
expect not_built first tests_quick # no tests
expect build first # nothing has moved
expect silent
echo kept >"$work/first/build/model"
mv "$work/first" "$work/second"
expect build second
expect says "^dev: build: stale, configured for $work/first; configuring again for $work/second$"
expect grep -q kept "$work/second/build/model"
cp -r "$work/second" "$work/third" # the old place is still there
expect build third
expect says "^dev: build: stale, configured for $work/second; configuring again for $work/third$"
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
expect says '^one in 16\.$'
expect sampled MHA_SAMPLE=1 "$work/third/dev" test
expect says '^one in 1\.$'
expect sampled "$work/third/dev" test sampled
expect says '^one in \.$'

# Without words, what is slow is neither built nor run; `all` builds and runs everything; words build the programs that they name.
slow() { says '^slow$'; }
fast() { ! slow; }
third=$work/third
rm -f "$third"/build/*.made "$third/build/sampled"
# run WORD...: ./dev in the third folder; what the tests left goes to $work/said.
run() { env -u MHA_SAMPLE -u MHA_REQUIRE_ALL MHA_SETUP=no "$third/dev" "$@" >"$work/printed" 2>&1 && cp "$third/build/sampled" "$work/said"; }
expect run test
expect fast
expect built third tests_quick
expect not_built third rest
expect run test all --build
expect fast # nothing has run
expect built third rest
rm -f "$third"/build/*.made
expect run test two
expect test -x "$third/build/tests/test_two"
expect not_built third rest
expect run test slow
expect slow
rm -f "$third/build/sampled"
expect run test all
expect slow
unknown() { ! run "$@" && grep -q "no test matches 'none'; available: whole part sampled slow" "$work/printed"; }
expect unknown test none

# The plug-in: for who asks for it, unless MHA_CUDA says otherwise, here or in the cache, where it stays.
cached() { grep -q "^MHA_CUDA:STRING=$1$" "$third/build/CMakeCache.txt"; }
expect cached AUTO
export MHA_CUDA=OFF
expect run test cuda
expect cached OFF
unset MHA_CUDA
expect run test cuda
expect cached OFF
MHA_CUDA=AUTO
export MHA_CUDA
expect run build
expect cached AUTO
unset MHA_CUDA
expect run build
expect cached AUTO
expect run test cuda
expect cached NVCC
expect run test
expect cached NVCC

# On a terminal, the last line says how far the build and the tests are; without one, there is no such line.
plain() { run test && ! grep -q "$(printf '\r')" "$work/printed"; }
expect plain
if command -v script >/dev/null; then
    terminal() {
        (cd "$third" && MHA_SETUP=no MHA_REQUIRE_ALL=0 script -qec './dev test all' /dev/null) </dev/null >"$work/said" 2>&1
    }
    expect terminal
    expect says 'dev: building'
    expect says 'dev: testing 1/[0-9]*, [0-9]* s: '
    expect says 'Test *#[0-9]*: part '
    expect says '^1[0-9] passed, 0 failed, 2 skipped'
fi

echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
