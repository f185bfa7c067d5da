package report
import ("testing";"context";"fmt";"os";"countersign/store";"countersign/store/bolt";"countersign/adapters/chat";"time")
func TestReal(t *testing.T){
 db,err:=bolt.Open("/tmp/rtry/real.db",bolt.Options{}); if err!=nil {t.Fatal(err)}
 defer db.Close()
 var ths []string
 db.View(context.Background(), func(tx store.Tx) error { for k:=range tx.Scan(store.Prefix("history-next")) { p,_:=store.Parts(k); ths=append(ths,p[1].(string)) }; return nil})
 fmt.Println(ths)
 for _,th:=range ths { var inc Incident
  if err:=db.View(context.Background(), func(tx store.Tx) error { inc=Load(tx, chat.ThreadID(th)); return nil}); err!=nil {t.Fatal(err)}
  inc.Made=time.Now()
  fmt.Println(Timeline(inc))
  f,_:=os.Create("/tmp/rtry/real.zip"); if err:=Export(context.Background(), f, inc, Parts{Chain: Chain(db, chat.ThreadID(th), inc.Made)}); err!=nil {t.Fatal(err)}; f.Close()
 }
}
