"""What an encoder's layers tell about words: edge probes of many layers."""
