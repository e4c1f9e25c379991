/* SPDX-License-Identifier: Apache-2.0 */
#pragma once
/* A file as a constant of the program, with a NUL behind it and symbol_end at that NUL. The path is
 * relative to the top of the source tree, where make runs. */

/* clang-format off */
#define EMBED(symbol, path) \
	__asm__(".pushsection .rodata\n" \
	        ".balign 16\n" \
	        ".globl " #symbol "\n.hidden " #symbol "\n" \
	        ".type " #symbol ", %object\n" \
	        #symbol ":\n.incbin \"" path "\"\n" \
	        ".globl " #symbol "_end\n.hidden " #symbol "_end\n" \
	        #symbol "_end:\n.byte 0\n" \
	        ".size " #symbol ", . - " #symbol "\n" \
	        ".popsection\n"); \
	extern __attribute__((visibility("hidden"))) const char symbol[]; \
	extern __attribute__((visibility("hidden"))) const char symbol##_end[]
/* clang-format on */
