/* What stand-ins for other libraries tell the fake CUDA runtime of the work they put on streams, so
 * that missing events are found in theirs as in its own.
 *
 * Every stream has a vector clock: how much of every stream's work must be over before its next
 * operation begins. Events, waits and a host that synchronises hand clocks on. Every byte of device
 * and pinned memory knows who wrote it last and who has read it since: an operation that uses a
 * byte although its stream's clock does not know of them is reported, whatever order things ran in.
 */
#pragma once
#include "tests/fake/include/cuda_runtime_api.h"
#include <glib.h>
G_BEGIN_DECLS

/* An operation on `stream`, from begin to end: the thread has the runtime for itself, may touch
 * device memory, and says what it reads and writes before it does so. Nests, for operations of
 * several streams at once; nothing may wait for another thread in between. Not while the stream is
 * being captured. FALSE: the memory is not there for the stream's device; it is reported, and the
 * operation should do nothing. */
cudaError_t fake_order_begin (cudaStream_t stream, const char *name);
gboolean fake_order_read (cudaStream_t stream, const void *at, size_t bytes);
gboolean fake_order_write (cudaStream_t stream, void *at, size_t bytes);
void fake_order_end (cudaStream_t stream);

/* No stream of these, each between begin and end, continues before all have come this far, as in a
 * collective. What each stream uses by itself is declared before this call. */
void fake_order_meet (const cudaStream_t *streams, guint n_streams);

/* For `n` pairs of streams at once: what from[i] has done so far is done before to[i] continues.
 * Both are between begin and end. */
void fake_order_pass (const cudaStream_t *from, const cudaStream_t *to, guint n);

/* The same for one stream, and also while it is captured: `work` runs now, or whenever the graph is
 * launched, with a copy of the closure and the stream it is to declare its use to. */
typedef cudaError_t (*FakeOrderWork) (cudaStream_t stream, void *closure);
cudaError_t fake_order_run (cudaStream_t stream, const char *name, FakeOrderWork work,
                            const void *closure, size_t bytes);

/* The first says whether the stream is being captured. The second then puts `work` into the graph;
 * every launch runs it at its place, without the lock of the runtime, so that it may wait for other
 * launches. What it uses on the stream that it is given it declares as above. `gone` is called when
 * the last graph with it is destroyed; it may not wait. */
gboolean fake_order_is_captured (cudaStream_t stream);
void fake_order_keep (cudaStream_t stream, const char *name, FakeOrderWork work,
                      const void *closure, size_t bytes, void (*gone) (void *closure));

/* Every call that can fail asks this for the error to fail with: one that a test asked for, or a
 * kernel's error. */
cudaError_t fake_order_fails (void);

/* Makes the stream stand still, or continue. Meanwhile nothing on it ends, nor behind what waits
 * for it: queries answer "not ready", and a host that waits without asking is reported. */
void fake_order_stall (cudaStream_t stream, gboolean is_stalled);

/* A use of pinned memory by the host itself, which is about to begin: it is reported where a stream
 * may still use the bytes in a way that this conflicts with. What is issued later is behind it. */
void fake_order_host_use (const char *name, const void *at, size_t bytes, gboolean is_write);

/* For host threads that meet in a way that CUDA does not see: all that was over for the thread that
 * gave `what` is then over for the thread that takes it, too. (The begin and end of threads are
 * seen.) */
void fake_order_host_give (const void *what);
void fake_order_host_take (const void *what);

/* Notes that a library's object is made or destroyed: leaks and double frees are reported. */
void fake_order_made (const void *object, const char *kind);
gboolean fake_order_gone (const void *object, const char *kind); /* FALSE: it was not there */

/* For reports of other errors, and for lines of fake_cuda_log. */
void fake_order_report (const char *format, ...) G_GNUC_PRINTF (1, 2);
void fake_order_log (const char *format, ...) G_GNUC_PRINTF (1, 2);

/* The number of a stream in the log and in reports; the device that it is on. */
guint fake_order_stream (cudaStream_t stream);
int fake_order_device (cudaStream_t stream);

G_END_DECLS
