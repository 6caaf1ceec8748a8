/* How processes that a launcher started, and told nothing but where rank 0 is, find each other: all
 * connect to rank 0 there, by TCP, say who they are, and hear what everybody said. Once; what comes
 * later goes by other ways. Any address that reaches rank 0's host will do, of any interface. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* `meeting` is HOST:PORT, or [HOST]:PORT; `all` gets every rank's `bytes` at `own`, in rank order.
 * IO with who is missing, or why rank 0 is not reached, after `timeout_s` seconds; 0: never. */
gboolean exec_rendezvous (const char *meeting, guint rank, guint ranks, void *all, const void *own,
                          guint bytes, guint timeout_s, GError **error);

G_END_DECLS
