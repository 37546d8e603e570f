// Hadoop's files of this machine, whose permissions are set by a system call.
//
// Without Hadoop's native library, which Spark does not bring, RawLocalFileSystem starts a process, chmod, for every
// file and directory that it makes: a dozen for each micro-batch of a stream.
package headrace;

import java.io.File;
import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public final class NativeFiles extends RawLocalFileSystem {
    private static final int SET_IDS = 06000;

    public void setPermission(Path path, FsPermission permission) throws IOException {
        File file = pathToFile(path);
        int mode = permission.toShort();
        if (file.isDirectory()) {  // chmod leaves these bits of a directory as they are
            mode |= ((Integer) Files.getAttribute(file.toPath(), "unix:mode")).intValue() & SET_IDS;
        }
        Files.setAttribute(file.toPath(), "unix:mode", Integer.valueOf(mode));
    }

    // From now on, who asks Hadoop for the files of this machine gets these, with checksums as before.
    public static void install(Configuration conf) throws Exception {
        URI local = URI.create("file:///");
        LocalFileSystem files = new LocalFileSystem(new NativeFiles());
        files.initialize(local, conf);
        Method cache = FileSystem.class.getDeclaredMethod(
            "addFileSystemForTesting", new Class[] {URI.class, Configuration.class, FileSystem.class});
        cache.setAccessible(true);
        cache.invoke(null, new Object[] {local, conf, files});
    }
}
