/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The schema of the database: made and brought up to date by "twheeld --migrate", looked at when
 * a node starts. Both wait for PostgreSQL, and are called before the loop runs.
 */
#ifndef TWHEELD_MIGRATE_H
#define TWHEELD_MIGRATE_H

/* The files of sql/ in order, the first of which makes schema 1; NULL behind the last. */
extern const char *const migrations[];

enum schema_status {
	SCHEMA_FITS,
	SCHEMA_WRONG,		/* it was told what to do */
	SCHEMA_UNKNOWN,		/* the database cannot be reached, as was told */
};

/* Applies what is missing, each in a transaction. 0, or -1 after it was told why not. */
int migrate(const char *conninfo);

/* Whether a node of this version can work with the schema that is there. */
enum schema_status schema_check(const char *conninfo);

#endif
