#!/bin/sh
# Opens what `mha view` writes in a browser and looks at it with run.mjs. Packages, models and pages go
# to a folder of the build.
#
#     run.sh COMMAND FOLDER [WORD...]      the mha command, the folder, such as build/view, and words of tests to run
#
# Node, npm and Chromium are what `./dev setup all` installs; whoever builds by hand may go without them.
set -u
command=$1 folder=$2
shift 2
here=$(cd "$(dirname "$0")" && pwd)
skip() { echo "  -     view_browser: $1" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }

for tool in node npm; do command -v $tool >/dev/null || skip "no $tool"; done
browser=
for name in chromium-headless-shell chromium chromium-browser google-chrome; do
    [ -n "$browser" ] || browser=$(command -v $name || true)
done
[ -n "$browser" ] || skip 'no chromium'
node -e 'process.exit(parseInt(process.versions.node) < 18 ? 1 : 0)' || skip "node $(node --version) is older than 18"

# Fetched once; again when the list of packages changes. A copy of the list, made last, says that all are there.
mkdir -p "$folder" || exit 1
if ! cmp -s "$here/package.json" "$folder/node_modules/fetched.json"; then
    rm -rf "$folder/node_modules"
    cp "$here/package.json" "$folder/package.json"
    timeout 180 npm install --prefix "$folder" --no-package-lock --omit=dev --ignore-scripts --no-audit --no-fund \
        >"$folder/npm.log" 2>&1 </dev/null || skip "npm could not fetch its packages (see $folder/npm.log)"
    cp "$here/package.json" "$folder/node_modules/fetched.json"
fi

# The scripts lie beside the packages, where node looks for these.
cp "$here"/*.mjs "$folder" || exit 1
export MHA_WEB="$here/../../web"
exec node "$folder/run.mjs" "$command" "$browser" "$folder" "$@"
