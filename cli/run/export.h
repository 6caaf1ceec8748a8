/* "fsdplan export": the weights of a checkpoint for other programs. */
#pragma once
#include <glib.h>
G_BEGIN_DECLS

int cli_export (int argc, char **argv, GError **error);

G_END_DECLS
