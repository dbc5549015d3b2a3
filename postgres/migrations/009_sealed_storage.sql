-- What is large in an event is sealed, and does not compress: to try took half of the time of an append of users of 200 kB.
ALTER TABLE events ALTER COLUMN data SET STORAGE EXTERNAL;
