// A table of Spark's over files of Arrow batches that are mapped into memory: what is read of them are columns, in
// place, and only those that a query uses.
//
// Spark's data sources in Python send rows through a socket, and Spark then copies them one by one. Here a batch in the
// file is a batch of Spark's: Python says where batches are (`mappedrecords.py`), and this reads them.
package headrace;

import java.io.File;
import java.io.FileInputStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.LongBuffer;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Collections;
import java.util.Set;
import java.util.zip.CRC32;
import org.apache.arrow.flatbuf.Message;
import org.apache.arrow.flatbuf.RecordBatch;
import org.apache.arrow.memory.util.MemoryUtil;
import org.apache.spark.sql.connector.catalog.SupportsRead;
import org.apache.spark.sql.connector.catalog.Table;
import org.apache.spark.sql.connector.catalog.TableCapability;
import org.apache.spark.sql.connector.read.Batch;
import org.apache.spark.sql.connector.read.InputPartition;
import org.apache.spark.sql.connector.read.PartitionReader;
import org.apache.spark.sql.connector.read.PartitionReaderFactory;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.connector.read.ScanBuilder;
import org.apache.spark.sql.connector.read.SupportsPushDownRequiredColumns;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.unsafe.types.UTF8String;

public final class MappedRecords implements Table, SupportsRead {
    // Numbers of a block: the file, position and length of its batch there, its checksum, the place of the batch's
    // first record, how many it has, and which of them are read: from, until.
    private static final int BLOCK = 8;
    // Numbers of a column: its node and its first buffer in a batch, and those of the struct it is in, or -1.
    private static final int COLUMN = 4;

    private final String name;
    private final StructType schema;
    private final Layout layout;
    private final Share[] shares;

    public MappedRecords(String name, String schema, byte[] columns, byte[] hidden, byte[] mark, String damaged,
            String gone, int shares) {
        this.name = name;
        this.schema = (StructType) DataType.fromJson(schema);
        this.layout = new Layout(this.schema, columns, hidden, mark, damaged, gone);
        this.shares = new Share[shares];
    }

    // Adds what one task reads: files, each with its name in messages, and blocks in them.
    public void share(int number, String files, String places, byte[] blocks) {
        shares[number] = new Share(files.split("\0"), places.split("\0"), blocks);
    }

    public String name() {
        return name;
    }

    public StructType schema() {
        return schema;
    }

    public Set capabilities() {
        return Collections.singleton(TableCapability.BATCH_READ);
    }

    public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) {
        return new Columns(layout, shares);
    }

    private static LongBuffer longs(byte[] octets) {
        return ByteBuffer.wrap(octets).order(ByteOrder.LITTLE_ENDIAN).asLongBuffer();
    }

    // How columns lie in a batch. A column whose node is -1 has the places of records.
    public static final class Layout implements java.io.Serializable {
        final StructType schema;
        final byte[] columns;
        final byte[] hidden;
        final byte[] mark;
        final String damaged;
        final String gone;

        Layout(StructType schema, byte[] columns, byte[] hidden, byte[] mark, String damaged, String gone) {
            this.schema = schema;
            this.columns = columns;
            this.hidden = hidden;
            this.mark = mark;
            this.damaged = damaged;
            this.gone = gone;
        }
    }

    public static final class Share implements InputPartition {
        final String[] files;
        final String[] places;
        final byte[] blocks;

        Share(String[] files, String[] places, byte[] blocks) {
            this.files = files;
            this.places = places;
            this.blocks = blocks;
        }
    }

    // What Catalyst asks for and gets: some of the columns, of all records.
    public static final class Columns implements SupportsPushDownRequiredColumns, Scan, Batch {
        private final Layout layout;
        private final Share[] shares;
        private StructType used;

        Columns(Layout layout, Share[] shares) {
            this.layout = layout;
            this.shares = shares;
            this.used = layout.schema;
        }

        public void pruneColumns(StructType required) {
            used = required;
        }

        public Scan build() {
            return this;
        }

        public StructType readSchema() {
            return used;
        }

        public Batch toBatch() {
            return this;
        }

        public Scan.ColumnarSupportMode columnarSupportMode() {
            return Scan.ColumnarSupportMode.SUPPORTED;
        }

        public InputPartition[] planInputPartitions() {
            return shares;
        }

        public PartitionReaderFactory createReaderFactory() {
            return new Readers(layout, used);
        }
    }

    public static final class Readers implements PartitionReaderFactory {
        private final Layout layout;
        private final StructType used;

        Readers(Layout layout, StructType used) {
            this.layout = layout;
            this.used = used;
        }

        public boolean supportColumnarReads(InputPartition share) {
            return true;
        }

        public PartitionReader createReader(InputPartition share) {
            throw new UnsupportedOperationException("records are read by the column");
        }

        public PartitionReader createColumnarReader(InputPartition share) {
            return new Reader(layout, used, (Share) share);
        }
    }

    public static final class Reader implements PartitionReader {
        private final Layout layout;
        private final StructType used;
        private final Share share;
        private final LongBuffer blocks;
        private final LongBuffer hidden;
        private final long[] columns;
        private final ArrayDeque runs = new ArrayDeque();
        // Generated code keeps texts of earlier batches by their address (a maximum without keys), and Spark keeps this
        // until the task ends: as long, all that was mapped must stay.
        private final ArrayList files = new ArrayList();
        private int next = 0;
        private int file = -1;
        private long begin;
        private MappedByteBuffer mapped;
        private ColumnarBatch current;

        Reader(Layout layout, StructType used, Share share) {
            this.layout = layout;
            this.used = used;
            this.share = share;
            this.blocks = longs(share.blocks);
            this.hidden = longs(layout.hidden);
            LongBuffer all = longs(layout.columns);
            this.columns = new long[COLUMN * used.size()];
            for (int at = 0; at < used.size(); at++) {
                int index = layout.schema.fieldIndex(used.apply(at).name());
                for (int number = 0; number < COLUMN; number++) {
                    columns[COLUMN * at + number] = all.get(COLUMN * index + number);
                }
            }
        }

        public boolean next() throws IOException {
            while (runs.isEmpty()) {
                if (next * BLOCK >= blocks.limit()) {
                    return false;
                }
                read(next++ * BLOCK);
            }
            current = (ColumnarBatch) runs.removeFirst();
            return true;
        }

        public Object get() {
            return current;
        }

        public void close() {
            runs.clear();
            current = null;
            mapped = null;
        }

        private void read(int block) throws IOException {
            int wanted = (int) blocks.get(block);
            if (wanted != file) {
                map(wanted, block);
            }
            int position = (int) (blocks.get(block + 1) - begin);
            int length = (int) blocks.get(block + 2);
            ByteBuffer message = mapped.duplicate().order(ByteOrder.LITTLE_ENDIAN);
            if (position + length > mapped.capacity()) {
                throw damaged(block);
            }
            int body = position + 8 + message.getInt(position + 4);
            boolean whole = body >= position && body <= position + length;
            if (!whole || checksum(position, body, length) != blocks.get(block + 3)) {
                throw damaged(block);
            }
            message.position(position + 8);
            Message head = Message.getRootAsMessage((ByteBuffer) message.slice());
            RecordBatch batch = (RecordBatch) head.header(new RecordBatch());
            long address = MemoryUtil.getByteBufferAddress(mapped) + body;
            int first = (int) blocks.get(block + 6);
            int until = (int) blocks.get(block + 7);
            split(batch, address, blocks.get(block + 4), first, until);
        }

        // Maps what is read of a file: it is never changed, only appended to, and stays though it is removed.
        private void map(int wanted, int block) throws IOException {
            long end = 0;
            begin = blocks.get(block + 1);
            for (int at = block; at < blocks.limit() && blocks.get(at) == wanted; at += BLOCK) {
                end = blocks.get(at + 1) + blocks.get(at + 2);
            }
            FileInputStream stream;
            try {
                stream = new FileInputStream(new File(share.files[wanted]));
            } catch (FileNotFoundException error) {
                throw failure(layout.gone, block);
            }
            try {
                FileChannel channel = stream.getChannel();
                long size = Math.min(end, channel.size()) - begin;
                if (size <= 0) {
                    throw damaged(block);
                }
                mapped = channel.map(FileChannel.MapMode.READ_ONLY, begin, size);
                files.add(mapped);
            } finally {
                stream.close();
            }
            file = wanted;
        }

        private long checksum(int position, int body, int length) {
            CRC32 sum = new CRC32();
            update(sum, body, position + length);
            update(sum, position, body);
            return sum.getValue();
        }

        private void update(CRC32 sum, int first, int until) {
            ByteBuffer part = mapped.duplicate();
            part.limit(until);
            part.position(first);
            sum.update(part);
        }

        // Adds the rows of a batch that are records, in runs without gaps: what writers say of watermarks is none.
        private void split(RecordBatch batch, long address, long place, int first, int until) {
            int key = (int) hidden.get(0);
            int value = (int) hidden.get(2);
            long length = batch.length();
            if (batch.nodes(value).nullCount() == 0 || batch.nodes(key).nullCount() == length) {
                add(batch, address, place, first, until);
                return;
            }
            long present = address + batch.buffers((int) hidden.get(3)).offset();
            long known = batch.nodes(key).nullCount() == 0 ? 0 : address + batch.buffers((int) hidden.get(1)).offset();
            long ends = address + batch.buffers((int) hidden.get(1) + 1).offset();
            long octets = address + batch.buffers((int) hidden.get(1) + 2).offset();
            int start = first;
            for (int row = first; row < until; row++) {
                if (!bit(present, row) && (known == 0 || bit(known, row)) && marked(ends, octets, row)) {
                    add(batch, address, place, start, row);
                    start = row + 1;
                }
            }
            add(batch, address, place, start, until);
        }

        private boolean marked(long ends, long octets, int row) {
            int from = Platform.getInt(null, ends + 4L * row);
            int to = Platform.getInt(null, ends + 4L * row + 4);
            if (to - from < layout.mark.length) {
                return false;
            }
            for (int at = 0; at < layout.mark.length; at++) {
                if (Platform.getByte(null, octets + from + at) != layout.mark[at]) {
                    return false;
                }
            }
            return true;
        }

        private void add(RecordBatch batch, long address, long place, int first, int until) {
            if (first == until) {
                return;
            }
            ColumnVector[] vectors = new ColumnVector[used.size()];
            for (int at = 0; at < vectors.length; at++) {
                DataType type = used.apply(at).dataType();
                int node = (int) columns[COLUMN * at];
                int buffer = (int) columns[COLUMN * at + 1];
                if (node < 0) {
                    vectors[at] = new Places(type, place + first);
                    continue;
                }
                long own = validity(batch, address, node, buffer);
                int outer = (int) columns[COLUMN * at + 2];
                long around = outer < 0 ? 0 : validity(batch, address, outer, (int) columns[COLUMN * at + 3]);
                long data = address + batch.buffers(buffer + 1).offset();
                long texts = buffer + 2 < batch.buffersLength() ? address + batch.buffers(buffer + 2).offset() : 0;
                vectors[at] = new Mapped(type, mapped, own, around, data, texts, first, until - first);
            }
            runs.add(new ColumnarBatch(vectors, until - first));
        }

        private long validity(RecordBatch batch, long address, int node, int buffer) {
            return batch.nodes(node).nullCount() == 0 ? 0 : address + batch.buffers(buffer).offset();
        }

        private RuntimeException damaged(int block) {
            return failure(layout.damaged, block);
        }

        private RuntimeException failure(String message, int block) {
            int at = (int) blocks.get(block);
            long first = blocks.get(block + 4) & ((1L << hidden.get(4)) - 1);
            long next = first + blocks.get(block + 5);
            String text = message.replace("{place}", share.places[at]).replace("{first}", Long.toString(first));
            text = text.replace("{last}", Long.toString(next - 1)).replace("{next}", Long.toString(next));
            return new RuntimeException(text.replace("{file}", new File(share.files[at]).getName()));
        }
    }

    private static boolean bit(long bits, int row) {
        return (Platform.getByte(null, bits + (row >> 3)) >> (row & 7) & 1) != 0;
    }

    // A column of a batch in a file.
    public static final class Mapped extends Reading {
        private final Object file;  // stays mapped as long as somebody has the column
        private final long own;
        private final long around;
        private final long data;
        private final long texts;
        private final int first;
        private final int count;

        Mapped(DataType type, Object file, long own, long around, long data, long texts, int first, int count) {
            super(type);
            this.file = file;
            this.own = own;
            this.around = around;
            this.data = data;
            this.texts = texts;
            this.first = first;
            this.count = count;
        }

        public boolean hasNull() {
            return own != 0 || around != 0;
        }

        public int numNulls() {
            int nulls = 0;
            for (int row = 0; hasNull() && row < count; row++) {
                nulls += isNullAt(row) ? 1 : 0;
            }
            return nulls;
        }

        public boolean isNullAt(int row) {
            return own != 0 && !bit(own, first + row) || around != 0 && !bit(around, first + row);
        }

        public boolean getBoolean(int row) {
            return bit(data, first + row);
        }

        public int getInt(int row) {
            return Platform.getInt(null, data + 4L * (first + row));
        }

        public long getLong(int row) {
            return Platform.getLong(null, data + 8L * (first + row));
        }

        public float getFloat(int row) {
            return Platform.getFloat(null, data + 4L * (first + row));
        }

        public double getDouble(int row) {
            return Platform.getDouble(null, data + 8L * (first + row));
        }

        public UTF8String getUTF8String(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int from = getInt(row);
            return UTF8String.fromAddress(null, texts + from, getInt(row + 1) - from);
        }

        public byte[] getBinary(int row) {
            if (isNullAt(row)) {
                return null;
            }
            int from = getInt(row);
            byte[] octets = new byte[getInt(row + 1) - from];
            Platform.copyMemory(null, texts + from, octets, Platform.BYTE_ARRAY_OFFSET, octets.length);
            return octets;
        }
    }

    // The places of records: one after the other.
    public static final class Places extends Reading {
        private final long first;

        Places(DataType type, long first) {
            super(type);
            this.first = first;
        }

        public boolean hasNull() {
            return false;
        }

        public int numNulls() {
            return 0;
        }

        public boolean isNullAt(int row) {
            return false;
        }

        public long getLong(int row) {
            return first + row;
        }
    }

    // A column with the types that topics have; there is nothing to close.
    public abstract static class Reading extends ColumnVector {
        Reading(DataType type) {
            super(type);
        }

        public void close() {
        }

        private RuntimeException none() {
            return new UnsupportedOperationException("a column of " + dataType() + " has no such values");
        }

        public boolean getBoolean(int row) {
            throw none();
        }

        public byte getByte(int row) {
            throw none();
        }

        public short getShort(int row) {
            throw none();
        }

        public int getInt(int row) {
            throw none();
        }

        public long getLong(int row) {
            throw none();
        }

        public float getFloat(int row) {
            throw none();
        }

        public double getDouble(int row) {
            throw none();
        }

        public ColumnarArray getArray(int row) {
            throw none();
        }

        public ColumnarMap getMap(int row) {
            throw none();
        }

        public Decimal getDecimal(int row, int precision, int scale) {
            throw none();
        }

        public UTF8String getUTF8String(int row) {
            throw none();
        }

        public byte[] getBinary(int row) {
            throw none();
        }

        public ColumnVector getChild(int at) {
            throw none();
        }
    }
}
