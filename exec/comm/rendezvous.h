/* How processes find each other if the launcher told them only where rank 0 is: all connect to rank
 * 0 by TCP, send their rank and some bytes, and receive the bytes of all ranks. This happens once,
 * and again when a rank seems to be lost; everything else is sent by other means. Any address that
 * reaches rank 0's host will do. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Exchanges `bytes` bytes of every rank: `all` receives those at every rank's `own`, in rank order.
 * `meeting` is HOST:PORT or [HOST]:PORT. IO, naming the missing ranks or why rank 0 cannot be
 * reached, after `timeout_s` seconds; 0: no timeout. */
gboolean exec_rendezvous (const char *meeting, guint rank, guint ranks, void *all, const void *own,
                          guint bytes, guint timeout_s, GError **error);

/* A roll call at the same place, when something went wrong later: is_here[r] becomes 1 for every
 * rank that calls this within `timeout_s` seconds, which are more than 0, of rank 0's call, and
 * stays 0 for those that do not. IO where rank 0 is not reached. */
gboolean exec_rendezvous_roll (const char *meeting, guint rank, guint ranks, guint8 *is_here,
                               guint timeout_s, GError **error);

G_END_DECLS
