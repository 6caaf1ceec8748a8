/* NCCL between host threads: each rank of a communicator is a thread with a device of its own.
 *
 * A call is done when every rank of the communicator made it, by the one that came last, on all
 * their streams at once; until then its state is ncclInProgress. Sends and receives wait for
 * the ranks that they are with, and for those that these exchange with, alone. What one rank sends
 * in a group of calls, the other one must receive in its group, in the same order and size, or both
 * are refused. The stream that receives is ordered behind the stream that sends, and not the other
 * way round. (NCCL's own host calls wait for the other rank only the first time, to connect.) Ranks
 * that do not make the same call, of the same size and type, all get ncclInvalidUsage and a text
 * that names two of them; so does a call on a communicator whose last one is still in progress.
 * Sums are as a ring makes them, rounded at every hop, and between buffers in symmetric windows in
 * fp32 from the last rank to the first: never in the order of exec_comm_sum. Every buffer is
 * declared to tests/fake/order.h, as are communicators, windows, registrations and memory, which
 * must all be gone in the end. What is captured is called by every launch of the graph, which comes
 * back once all ranks' have got there, or stands still for ever where they are not alike: ranks
 * launch side by side.
 *
 * As NCCL 2.28's, where it is not told to wait: splits and windows say ncclSuccess at once and are
 * made later; an abort frees memory, so it waits for all that the GPU does, also in communicators
 * that are not aborted in the same group, and as the end of a communicator it waits until no graph
 * has a call of it. A rank that would wait for ever is reported. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

typedef enum
{
  FAKE_NCCL_SILENT, /* the rank makes no more calls: those of the others stay in progress */
  FAKE_NCCL_STALLS, /* calls are issued, but the streams of the other ranks never get beyond them */
  FAKE_NCCL_CLOSES, /* the others see ncclRemoteError */
  FAKE_NCCL_DIES,   /* its own calls fail at once, so that its thread can end; the others wait */
} FakeNcclLoss;

/* Resets what was set for lost ranks. No communicator may exist. */
void fake_nccl_reset (void);

/* The rank of the first communicator made after a reset is lost when it begins its call number
 * `calls` from now, counted from 0, over all its communicators. */
void fake_nccl_lose (guint rank, guint calls, FakeNcclLoss how);

/* Sets the bytes of its device that each rank of a communicator takes when it connects to the
 * others: by the first collective, or where NCCL_RUNTIME_CONNECT is 0 when the communicator is
 * made. 0 after a reset. */
void fake_nccl_set_buffers (guint64 bytes);

/* How many windows and communicators this thread has asked for and not got yet, since a thread of
 * NCCL's makes them later. An abort may end while some are missing. */
guint fake_nccl_owed (void);

/* Sets what ncclGetVersion returns until the next reset. */
void fake_nccl_set_version (int version);

/* The number of collectives since the reset that went between symmetric windows, and of those among
 * them that took no multiprocessor. */
guint fake_nccl_symmetric (void);
guint fake_nccl_by_copy_engine (void);

/* The most multiprocessors that any communicator made since the reset may take; G_MAXINT: no
 * limit. */
int fake_nccl_processors (void);

G_END_DECLS
