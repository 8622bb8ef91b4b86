#!/bin/sh
# Downloads the original archives of the distribution's source packages that cmake/wasm_libraries.cmake compiles:
#
#     fetch_sources.sh FOLDER PACKAGE...
#
# apt reads the package sources of this machine as source packages, with lists of its own inside the folder: the machine's
# lists stay as they are, and root is not needed. Exit 1 if an archive is missing at the end.
set -u
folder=$1
shift
mkdir -p "$folder" && cd "$folder" || exit 1
own=$PWD/apt
trap 'rm -rf "$own"' EXIT
mkdir -p "$own/parts" "$own/lists/partial" "$own/cache/archives/partial" || exit 1

eval "$(apt-config shell list Dir::Etc::sourcelist/f parts Dir::Etc::sourceparts/d)"
cat "${list:?}" "${parts:?}"/*.list 2>/dev/null | sed -nE 's/^deb(-src)?[[:space:]]/deb-src /p' | sort -u >"$own/list"
for file in "$parts"/*.sources; do
    [ ! -f "$file" ] || sed -E 's/^Types:.*/Types: deb-src/' "$file" >"$own/parts/${file##*/}"
done
cat >"$own/apt.conf" <<END
Dir::Etc::sourcelist "$own/list";
Dir::Etc::sourceparts "$own/parts";
Dir::State::lists "$own/lists";
Dir::Cache "$own/cache";
APT::Sandbox::User "";
Acquire::http::Timeout "20";
Acquire::https::Timeout "20";
END
export APT_CONFIG="$own/apt.conf"
apt-get -q update # a list without source packages is passed over

# archive PACKAGE[=VERSION]: downloads its archive. What Debian changes is not needed here.
archive() {
    apt-get source --print-uris "$1" 2>/dev/null |
        sed -nE "s/^'(.*)' (.*\\.orig\\.tar\\.[a-z0-9]+) [0-9]+ (.*)/\\1 \\2 \\3/p" >"$own/uris"
    read -r uri name hash <"$own/uris" || return
    [ -f "$name" ] || { /usr/lib/apt/apt-helper download-file "$uri" "$own/$name" "$hash" && mv "$own/$name" "$name"; }
}

# A mirror may lack the newest version that it lists.
status=0
for package; do
    for version in '' $(apt-cache showsrc "$package" | sed -n 's/^Version: /=/p'); do
        archive "$package$version" && continue 2
    done
    status=1
done
exit $status
