package keystore

// Text is a text column as it was found. A value that is neither text nor NULL
// is neither Valid nor Null. Scanning never fails, so that one bad value
// cannot end the reading of other rows.
type Text struct {
	String string
	Valid  bool
	Null   bool
}

// Scan implements sql.Scanner.
func (t *Text) Scan(src any) error {
	t.String, t.Valid = src.(string)
	t.Null = src == nil
	return nil
}

// Integer is an integer column as it was found; see Text.
type Integer struct {
	Int64 int64
	Valid bool
	Null  bool
}

// Scan implements sql.Scanner.
func (i *Integer) Scan(src any) error {
	i.Int64, i.Valid = src.(int64)
	i.Null = src == nil
	return nil
}

// Bytes is a column of bytes as it was found; see Text.
type Bytes struct {
	Bytes []byte
	Valid bool
	Null  bool
}

// Scan implements sql.Scanner. It copies, because the source belongs to the
// database package.
func (b *Bytes) Scan(src any) error {
	found, ok := src.([]byte)
	b.Bytes, b.Valid = append([]byte(nil), found...), ok
	b.Null = src == nil
	return nil
}
