/* Tests of how ranks on NCCL meet: when they are launched, between steps, and not at all. */
#pragma once
#include <check.h>

void nccl_add_meeting_tests (TCase *tcase);
