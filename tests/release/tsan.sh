#!/bin/sh
# tsan.sh FOLDER: builds what threads share with ThreadSanitizer in FOLDER, runs its tests and commands
# that use all processors, and fails at the first data race: threads of a rank, ranks as threads,
# collectives, saving behind a run, the search and validation.
set -eu
source=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$1"
cd "$1"
[ -e Makefile ] || "$source/configure" CC="${CC-gcc}" CFLAGS='-g -O1 -fsanitize=thread' \
  LDFLAGS=-fsanitize=thread --without-cuda --without-nccl --without-cudnn
tests='unit/test-pool unit/test-comm unit/test-checkpoint prop/prop-threads unit/test-exec prop/prop-exec'
# shellcheck disable=SC2046,SC2086 # words
make -j"${JOBS-2}" $(printf 'tests/%s.tap ' $tests) fsdplan fsdplan-exec-cpu db/catalogue.db db/runs.csv db/adjustments.txt
# shellcheck disable=SC2046
${CC-gcc} -shared -fPIC -O1 -I. -o tsan-glib.so "$source/tests/release/tsan-glib.c" \
  $(pkg-config --cflags --libs glib-2.0) -ldl
# What is suppressed: GLib's macro for a quark, in which several threads may set the same value at once;
# and oneDNN, which is not built with ThreadSanitizer, so that its locks are not seen.
printf '%s\n' race:plan_error_quark called_from_lib:libdnnl.so.2 race:libdnnl.so >suppressions
# GLib's slices would hand memory from thread to thread unseen: it has to use malloc.
export G_SLICE=always-malloc G_DEBUG=fatal-criticals TSAN_OPTIONS="exitcode=66 halt_on_error=1 suppressions=$PWD/suppressions"
export FSDPLAN_CATALOGUE="$PWD/db/catalogue.db" FSDPLAN_DEBUG_CHECK=1 FSDPLAN_SHARE="${FSDPLAN_SHARE-40}"
export CK_FORK=no CK_DEFAULT_TIMEOUT=0 OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 top_srcdir="$source"
watched () { echo "== $*"; LD_PRELOAD=$PWD/tsan-glib.so "$@" >tsan.out 2>tsan.err || { cat tsan.out tsan.err; exit 1; }; }
# The set-up itself: a race is found, and none where a lock of GLib's prevents it.
cat >race.c <<'END'
#include <glib.h>
static int n;
static GMutex mutex;
static gpointer
count (gpointer locks)
{
  if (locks)
    g_mutex_lock (&mutex);
  n++;
  if (locks)
    g_mutex_unlock (&mutex);
  return NULL;
}
int
main (int argc, char **argv)
{
  GThread *threads[] = { g_thread_new (NULL, count, argv[1]), g_thread_new (NULL, count, argv[1]) };
  return g_thread_join (threads[0]) != g_thread_join (threads[1]) || argc > 2;
}
END
# shellcheck disable=SC2046
${CC-gcc} -g -O1 -fsanitize=thread -o race race.c $(pkg-config --cflags --libs glib-2.0)
watched ./race locked
if (watched ./race) >race.out; then echo "a race was not found"; exit 1; fi
for test in $tests; do watched "./tests/$test.tap"; done
tiny='--model llama-tiny --gbs 8 --seq 16 --steps 6 --db :memory:'
# shellcheck disable=SC2086
watched ./fsdplan run $tiny --ranks 2 --threads 2 --save "$PWD/kept" --save-every 1
watched ./fsdplan query --model llama3-8b --cluster dgx-h100:1 --gbs 64 --db :memory: --no-keep
watched ./fsdplan validate --stack fsdp2 --rows --db :memory:
echo 'no data races'
