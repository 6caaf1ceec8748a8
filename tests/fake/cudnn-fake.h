/* What tests set of the fake cuDNN. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

/* Until it is set again: its version, 91900 at first, and how much more workspace a plan wants than
 * its engine said, 0 at first. */
void fake_cudnn_set (guint version, guint64 more_bytes);

G_END_DECLS
