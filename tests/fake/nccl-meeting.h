/* Tests of how ranks on NCCL meet at the start and between steps, and of what happens when one
 * never comes. */
#pragma once
#include <check.h>

void nccl_add_meeting_tests (TCase *tcase);
