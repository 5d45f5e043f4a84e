//! Records of a gateway's store and backups: a record that is read, written and read again stays
//! the same.

use rove_gateway::testing::store_record;

use crate::Target;

/// The target.
pub const TARGET: Target = Target { name: "store_record", run, seeds, mutations: 50_000 };

fn run(data: &[u8]) {
    // The properties are checked where the types are defined.
    let _ = store_record(data);
}

fn seeds() -> Vec<Vec<u8>> {
    // KEY stands for a key or a hash, and ' for ".
    let records = [
        "{'key':'KEY','name':'laptop','host':2,'subnets':['192.168.7.0/24'],\
          'allowed':['10.77.0.3:22'],'enrolled':1790000000,'invite':'KEY',\
          'standing':{'is':'enrolled'}}",
        "{'key':'KEY','name':'phone','host':3,'enrolled':1,'invite':'KEY',\
          'standing':{'is':'revoked','at':2}}",
        "{'token':'KEY','name':'laptop','uses':1,'used':0,'issued':1,'expires':86401,\
          'subnets':[],'allowed':['fd77::3']}",
        "{'local':'192.0.2.1:4433','remote':'[2001:db8::7]:40000','index':77}",
        "{'at':1,'event':'enrolled','name':'laptop','key':'KEY'}",
        "{'at':1,'event':'refused','key':'KEY','why':'its invite has expired'}",
        "{'at':1,'event':'allowed','name':'laptop','destinations':['10.77.0.3']}",
        "{'at':1,'event':'restored'}",
    ];
    let key = "a".repeat(52);
    let written = |record: &str| record.replace("KEY", &key).replace('\'', "\"").into_bytes();
    records.into_iter().map(written).collect()
}
