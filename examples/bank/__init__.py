"""The payment executor of *Online Event Processing* (Kleppmann, Beresford & Svingen, 2019).

A payment moves money from a source account to a destination account and a fee to the bank's fees
account: all three steps or none, in one transaction, and never below the overdraft limit of the source
account. The article needs an executor for each account and a stream of its own for each step; here
it is one method. A payment request that is sent twice under one request id is paid once.
"""

from penstock import App

from .account import Account, init_accounts

app = App("bank", Account, init_accounts)
