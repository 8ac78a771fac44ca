import java.net.InetSocketAddress;
import java.util.HashMap;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.iceberg.CatalogUtil;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/**
 * Iceberg's reference implementation of a REST catalog, on 127.0.0.1: RestCatalog PORT FOLDER [OPTION=VALUE ...].
 *
 * <p>Without options, tables are in the folder. Options are Iceberg's own, such as those of a warehouse on S3.
 */
public class RestCatalog {
  public static void main(String[] args) throws Exception {
    var options =
        new HashMap<>(
            Map.of(
                "catalog-impl", "org.apache.iceberg.jdbc.JdbcCatalog",
                "uri", "jdbc:sqlite:" + args[1] + "/rest.db",
                "jdbc.schema-version", "V1",
                "warehouse", "file://" + args[1] + "/tables",
                "io-impl", "org.apache.iceberg.hadoop.HadoopFileIO"));
    for (int at = 2; at < args.length; at++) {
      var option = args[at].split("=", 2);
      options.put(option[0], option[1]);
    }
    var catalog = CatalogUtil.buildIcebergCatalog("lake", options, new Configuration());
    var handler = new ServletContextHandler();
    handler.setContextPath("/");
    handler.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
    var server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(args[0])));
    server.setHandler(handler);
    server.start();
    server.join();
  }
}
