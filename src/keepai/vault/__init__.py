"""The vault: secrets in an encrypted file beside the ledger, whose key is kept elsewhere. In reading order:

vault     stores and reads secrets by connection and name
keys      where the master key is: keyring, file or passphrase
sealing   encrypts and decrypts
file      reads and writes the vault's file
strength  estimates how hard a secret is to guess

It imports `model` alone.
"""
