"""What real RocketMQ 5.5.0 brokers sent to a NameServer and what it answered, unchanged.

Long frames stand here as base64 of zlib; nothing was made by our code.
"""

import base64
import zlib

REGISTER_FRAME = zlib.decompress(
    base64.b64decode(
        "eNrFlt1S2kAUx+kD9CX2mnYIaMBcFUJQKiSYpFin09lZyAEz5gM3m1rK8O49G4IjojbRDsIFs3v2nP/vfIRspfIR"
        "KpUPX1ZkGntANKXWqBL4LXo+BF5CtBWZ8PgGeN8jGqmRKpnE3lLn00Yd14raUhW1WVcaaJgGaSKAmyzEMKQLM5YG"
        "Qt9sSr8sTNvzuHSsNz/X8Kug3kldQTNEbBJAeyr8aD5kmY9GZixIAI3XzAH+6xnvutSOwwWHJAHvgddGMefZLD4x"
        "sq6SWcDmRKtVScCiecrm0v61PW6jT7xgtylkxgS4zwL/D7jLBegp5xAJe6TLs45l4lkESvw4Itqx0livyMwPkHoD"
        "OvATQbQfP6tExAt/qsfRzJ8724CXnC0WMsEV8Zhg420c2YM0ylKX+oIJuLfhhvBDwM1wgV1qnhw1W4raqDWOVcwo"
        "xIBYuO4bo6nNo9p6h9mVXZGx7OEFda4c6tpt06Fn7UGPutaor0sbE4L7k1SAnBf0j7knVbM+VAlmGhJNrRIOzLtI"
        "IQUzDfGkkgv1srrJImNpnb55OjCo2z4luTnv37P6+TFnmfS2bb3jvoCHSsjUgWh6HTJ+44Jszauha/WjUty7ukVg"
        "UQFxrF7PMVw6tMZGlxpjw3QPVeknlAvW2O1cIn1RzuYeZ6sUZ65WgK2FBNv5sS393Ol23n2On+UoWGse3tJkmVDb"
        "GPfHBh1Yp/TRX+6rEyrXhn+DFOyQY8gaGI572IY8li1Y/9cVe3/mFbUUbfnSKvL94OhnRvebjChzpN/x84b6lhuQ"
        "p7SLcLf2qowzNhpcHXY8XiAo+aTeXQMEVL52+aHgn5IuSe1cmTrt2Na5YdOhMezgz/1VqmAWyn/K4iWUglnt3iKs"
        "0btfZHYRSmax+w5512xeQimYVdmxar4RvdzsbK/F2eYwv26DYH6Aiw3knr0fzeLcul7/BfhJdp0="
    )
)
"""broker-a at 127.0.0.1:10921 with the 15 topics of a new broker."""

REGISTER_ONE_TOPIC_FRAME = zlib.decompress(
    base64.b64decode(
        "eNqNUdtu00AQDULqh8yzQb6EXPxmuaQKasPFUXlAVbXxjs2KtdfshRIi/zuztgNFqFK1TzNnz5kzZ2azlxez2Yvs"
        "BKXiCGkUJgHgT7sRKLmB9AQHrb6h3nJIIYQADoofc10mMdXzdZxESZLMqV9KZyzqHWtIBS6xYk7afGx62qCSca4J"
        "jeLl65BeROPWcUQwtuwgMSutaOsbNnBSqJg0SOBXVqD+8QQ79rNV02k0Bvkj1jhx8jMWrxj0AVSS1ZCGAUjW1o7V"
        "Hn+X3WbEUR377nwKCcEGtWBS/ML9scPcaY2t/fQh97+L9zv6TZaMUC2kb6KkP0ElJPkerV4LYyH9cheAVZ0oc9VW"
        "oi7Ogp816zq/4gk4s+z2rOOP4NphebqCscziH4wMWdEgNZuODC7X8+UqWiyT1SKmnRoSpOgun1ALn6+26v/xvPd3"
        "8VoPQqMlQuwLZq0WB0c1VURQmvsxQ/QB0GoNpIsANDL+0aHDnWvo53xS3gxB+VQpy2K7u7p+e7/PrmCCp5P9HTj1"
        "i6PZnE/3oIXFx9L92fbQvJniQMuEpGJ0+R++bSs1oX3/G9D1/4A="
    )
)
"""The same broker, when it had created the topic wiretest2."""

COMPRESSED_REGISTRATION = base64.b64decode(
    "eNqNUVFLwzAQDv4Af4AohAqKMHUZY+32trbZVtY2s4nVInLMUXCMrltaH2T4302mfRidc7nLBe6+7/jughCyNsYs"
    "/1iWqTR6zYZRlNMyjVNZzPPlNlHOs1Qls5XRI2a3bbWaKphW9wshdKpuIwoegCccRNQPOYz6/gAEm3gOJso6mHvh"
    "0Kcg+kO80ZxrO13O3rOpXAjVF5Nmq/0T6tCLuZaVrzDpaDdrgDNhPykutpTVq+1KWcScMXftYxVecqoRlIuDsBvu"
    "jKj7qFMaBc/qYGJpr4Pvd7fEJv/LMPfLP4Z6/ibzRSpvp9t6fTNXbDDgVEDAYuoCjWko/uh0J7M1FJ8FRDT2Ygo+"
    "G0L1K3rre/73t6wYEz85PGHVnCehA3bExjSCgAa2enYmIDXqycuriugbgUm+aA=="
)
"""The body of a broker with compressedRegister=true, cluster interop: 14 topics."""

ROUTE_BODY = (
    b'{"brokerDatas":[{"brokerAddrs":{"0":"127.0.0.1:10921"},"brokerName":"broker-a",'
    b'"cluster":"DefaultCluster","enableActingMaster":false}],"filterServerTable":{},'
    b'"queueDatas":[{"brokerName":"broker-a","perm":7,"readQueueNums":8,"topicSysFlag":0,'
    b'"writeQueueNums":8}]}'
)
"""The answer about TBW102."""

NO_ROUTE_REMARK = (
    "No topic route info in name server for the topic: wiretest\n"
    "See https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
)

CLUSTER_INFO_BODY = (
    b'{"brokerAddrTable":{"broker-a":{"brokerAddrs":{0:"127.0.0.1:10921"},'
    b'"brokerName":"broker-a","cluster":"DefaultCluster","enableActingMaster":false}},'
    b'"clusterAddrTable":{"DefaultCluster":["broker-a"]}}'
)
"""With a number as key, which is not JSON."""

UNREGISTER_FRAME = (
    b'\x00\x00\x00\xda\x00\x00\x00\xd6{"code":104,"extFields":{"brokerId":"0",'
    b'"clusterName":"DefaultCluster","brokerAddr":"127.0.0.1:10921","brokerName":"broker-a"},'
    b'"flag":0,"language":"JAVA","opaque":211,"serializeTypeCurrentRPC":"JSON","version":513}'
)
